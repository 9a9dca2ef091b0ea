"""The first hour of a stranger: a fresh clone without an environment, the README's two commands, and every guide.

    python3 scripts/first_hour.py [--all]

Clones this checkout (what is committed) into a temporary directory, reads the two commands from the README of the clone
and runs them there: `./serve`, on a free port, until it answers; then `./test` with the tests that read the commands of
every document and run them in order. `--all` runs `./test` without arguments instead, as the README has it. Needs git
and Python only, and takes minutes: the packages are installed as for anybody. Prints what the commands print, and exits
with 1 when one of them fails.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
COMMAND = re.compile(r"^(?P<command>\./\w+) +# ", re.MULTILINE)
DOCUMENT_TESTS = (
    "tests/acceptance/test_documents.py",
    "tests/acceptance/test_client_document.py",
    "tests/acceptance/test_examples.py",
    "tests/browser/test_chat_example.py",
    "tests/spark/test_documented_examples.py",
    "tests/spark/test_documented_pipelines.py",
    "tests/spark/test_examples.py",
    "tests/unit/cli/test_documented_commands.py",
)
START_S_MAX = 1200.0
STOP_S_MAX = 60.0
POLL_S = 0.5


class CommandFailed(Exception):
    """A command of the README did not do what the README says."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="run all tests, as the README says")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topics-first-hour-") as directory:
        try:
            spend_first_hour(Path(directory), () if options.all else ("-vv", *DOCUMENT_TESTS))
        except CommandFailed as problem:
            say(f"failed: {problem}")
            return 1
    say("both commands of the README work, and so do the documents")
    return 0


def spend_first_hour(directory: Path, tests: Sequence[str]) -> None:
    clone = directory / "topics"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    serve, test = COMMAND.findall((clone / "README.md").read_text())
    start_server(serve, clone, directory / "address")
    run_tests([test, *tests], clone)


def start_server(command: str, clone: Path, address: Path) -> None:
    settings = {"TOPICS_PORT": "0", "TOPICS_PORT_FILE": str(address)}
    say(f"$ {command}")
    began = time.monotonic()
    process = subprocess.Popen([command], cwd=clone, env=environment() | settings)
    try:
        while not address.exists():
            if process.poll() is not None:
                raise CommandFailed(f"{command} ended with status {process.returncode}")
            if time.monotonic() - began > START_S_MAX:
                raise CommandFailed(f"{command} did not listen within {START_S_MAX:g} s")
            time.sleep(POLL_S)
        with urlopen(f"http://{address.read_text().strip()}/v0/health") as reply:
            health = json.load(reply)
        say(f"it answers after {time.monotonic() - began:.0f} s: {json.dumps(health)}")
        process.send_signal(signal.SIGTERM)
        if (status := process.wait(STOP_S_MAX)) != 0:
            raise CommandFailed(f"{command} stopped with status {status}")
    finally:
        process.kill()
        process.wait()


def run_tests(command: Sequence[str], clone: Path) -> None:
    say(f"$ {' '.join(command)}")
    began = time.monotonic()
    status = subprocess.run(command, cwd=clone, env=environment(), check=False).returncode
    say(f"it ended with status {status} after {time.monotonic() - began:.0f} s")
    if status != 0:
        raise CommandFailed(" ".join(command))


def environment() -> dict[str, str]:
    """The caller's, without what a stranger does not have: settings of a server, and a Python environment in use."""
    ours = ("TOPICS_", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
