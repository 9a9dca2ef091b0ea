"""The script that takes pictures of the console, over a real `topics demo`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from browser.conftest import BROWSERS

SCRIPT = Path(__file__).parents[2] / "scripts" / "console_screenshots.py"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="there is no Chromium on the PATH")
def test_pictures_in_light_dark_and_at_phone_width_are_taken_of_a_living_shop(tmp_path: Path) -> None:
    options = ["--seconds", "0", "--settle", "0", "--only", "overview"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        f"console-overview-{look}.png" for look in ("light", "dark", "phone")
    }
    assert all(path.read_bytes().startswith(PNG) for path in tmp_path.iterdir())
