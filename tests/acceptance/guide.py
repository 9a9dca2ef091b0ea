"""Runs the steps of a guide for people at a terminal, and holds what they print against what the guide shows.

Blanks count here: tables have to line up. `…` stands for anything within a line, and alone for any lines. Times,
addresses and lease ids may differ. A command whose output ends in `^C` runs until that is shown, and is then
interrupted. All share one shell, one directory and one server.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from acceptance.document_commands import Step
from acceptance.terminal import environment, masked

END = "--- end of the command"
INTERRUPTED = "^C"
COMMAND_S_MAX = 120.0
POLL_S = 0.05
SHIM = '#!/bin/sh\nexec "{python}" -m topics.cli.main "$@"\n'


def agrees(printed: str, step: Step) -> bool:
    """To the blank. What was interrupted may have gone on behind what is shown."""
    lines = masked(step.printed or "").splitlines()
    goes_on = is_interrupted(step)
    pattern = ""
    for line in lines[:-1] if goes_on else lines:
        pattern += r"(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
    return (re.match if goes_on else re.fullmatch)(pattern, masked(printed)) is not None


def is_interrupted(step: Step) -> bool:
    return step.printed is not None and step.printed.endswith(INTERRUPTED)


class Shell:
    """One bash for a whole guide: what one command sets or writes is there for the next."""

    def __init__(self, directory: Path, url: str) -> None:
        tools = directory / "bin"
        tools.mkdir()
        (tools / "topics").write_text(SHIM.format(python=sys.executable))
        (tools / "topics").chmod(0o755)
        (directory / "work").mkdir()
        self._environment = environment(url, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
        self._directory = directory / "work"
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._directory,
            env=self._environment,
            text=True,
        )

    def close(self) -> None:
        self._process.communicate()

    def run(self, step: Step) -> str:
        if is_interrupted(step):
            return self._run_until(step)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{step.commands}\necho '{END}'\n")
        self._process.stdin.flush()
        printed = ""
        for line in self._process.stdout:
            if line.rstrip("\n").endswith(END):
                return printed + line.rstrip("\n").removesuffix(END)
            printed += line
        raise AssertionError(f"the shell ended: {printed}")

    def _run_until(self, step: Step) -> str:
        """Until everything expected was printed; then Ctrl-C, which has to be a clean end."""
        output = self._directory.parent / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {step.commands}"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
            )
        try:
            for _ in range(int(COMMAND_S_MAX / POLL_S)):
                if agrees(output.read_text(), step) or process.poll() is not None:
                    break
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
            process.send_signal(signal.SIGINT)
            status = process.wait(COMMAND_S_MAX)
        finally:
            process.kill()
            process.wait()
        printed = output.read_text()
        return printed if status == 0 else f"{printed}ended with status {status}\n"
