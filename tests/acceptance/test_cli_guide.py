"""`docs/cli.md` does what it says: every example, from top to bottom."""

from pathlib import Path

from acceptance.document_commands import steps_of
from acceptance.guide import Shell, agrees
from conformance.process import ServerProcess

GUIDE = Path(__file__).parents[2] / "docs/cli.md"


def test_every_example_of_the_guide_prints_what_the_guide_shows(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, {})
    shell = Shell(tmp_path, f"http://{server.api.host}:{server.api.port}")
    try:
        wrong = []
        for step in steps_of(GUIDE.read_text()):
            printed = shell.run(step)
            if not agrees(printed, step):
                wrong.append(f"$ {step.commands}{printed}")
        assert not wrong, "\n".join(wrong)
    finally:
        shell.close()
        server.stop()
