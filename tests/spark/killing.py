"""Processes that say which step they are at, and are killed there. TOPICS_TEST_SEED repeats a run."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

SEED = int(os.environ.get("TOPICS_TEST_SEED", "0")) or random.randrange(1 << 30)


def run_and_kill(module: str, arguments: list[str], job: str, steps: int, delay_s: float) -> bool:
    """Whether it was killed; False when it was done before that."""
    root = Path(__file__).parent.parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=root) as process:
        assert process.stdout is not None
        at, seen = "", 0
        for line in process.stdout:
            if line.strip() == "step":
                seen += 1
            else:
                at, seen = line.strip(), 0
            if at == job and seen >= steps:
                time.sleep(delay_s)
                process.kill()
                return True
        assert process.wait() == 0
        return False
