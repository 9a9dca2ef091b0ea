"""The client's types hold under a second checker too; `mypy --strict` sees the whole project anyway."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]


def test_the_client_and_what_its_users_write_are_clean_under_basedpyright() -> None:
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
