"""What a shell is told a word may become."""

import subprocess
from pathlib import Path

import pytest

from topics.cli import complete, completion
from topics.cli.commands import names


def words(*typed: str) -> list[str]:
    return [word for word, _ in complete.candidates(list(typed))]


@pytest.fixture(autouse=True)
def _topics_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"topics": [("orders", "3 records"), ("chat:general", "")], "routers": [("orders->audit", "")]}
    monkeypatch.setattr(complete, "_names", lambda kind: known[kind])


def test_the_first_word_is_a_command() -> None:
    assert words("") == names()
    assert words("ta") == ["tail"]
    assert words("cre") == ["create"]


def test_then_come_actions_and_options() -> None:
    assert words("queue", "") == ["claim", "ack", "nack", "extend", "peek", "leases", "redrive"]
    assert words("queue", "claim", "--l") == ["--lease"]
    assert "--since" in words("tail", "--")


def test_names_of_topics_and_routers_come_from_the_server() -> None:
    assert words("tail", "") == ["orders", "chat:general"]
    assert words("tail", "orders", "ch") == ["chat:general"]
    assert words("queue", "claim", "or") == ["orders"]
    assert words("router", "rm", "") == ["orders->audit"]
    assert words("create", "jobs", "--dead-letter", "") == ["orders", "chat:general"]
    assert words("show", "orders", "") == []


def test_values_of_an_option_are_its_choices() -> None:
    assert words("create", "a", "--durability", "f") == ["fsync"]
    assert words("completion", "") == ["bash", "zsh", "fish"]
    assert words("tail", "a", "-n", "") == []


def test_nothing_is_known_of_what_is_not_a_command() -> None:
    assert words("xyzzy", "") == []


@pytest.mark.parametrize(
    ("shell", "check"), [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])]
)
def test_a_script_is_what_its_shell_reads(shell: str, check: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(completion.SCRIPTS[shell])
    try:
        done = subprocess.run([*check, str(script)], capture_output=True, check=False, text=True)
    except FileNotFoundError:
        pytest.skip(f"{shell} is not installed here")
    assert (done.returncode, done.stderr) == (0, "")


BASH = r"""
topics() {
    case "${!#}" in
        ch*) echo -e 'chat:general\tx\nchat:support\ty' ;;
        *) echo -e 'tail\tz' ;;
    esac
}
eval "$SCRIPT"
try() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
    _topics
    echo "${COMPREPLY[*]}"
}
try 'topics ta'
try 'topics tail ch'
try 'topics tail chat:g'
"""


def test_bash_completes_names_with_colons() -> None:
    environment = {"SCRIPT": completion.BASH, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", BASH], env=environment, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == ["tail", "chat:general chat:support", "general support"]


FISH = r"""
function topics; printf 'chat:general\tx\nchat:support\ty\ntail\tz\n'; end
source $argv[1]
complete -C 'topics ta'
complete -C 'topics tail chat:g'
"""


def test_fish_completes_with_descriptions(tmp_path: Path) -> None:
    script = tmp_path / "topics.fish"
    script.write_text(completion.FISH)
    try:
        done = subprocess.run(["fish", "-c", FISH, str(script)], capture_output=True, check=True, text=True)
    except FileNotFoundError:
        pytest.skip("fish is not installed here")
    assert done.stdout.splitlines() == ["tail\tz", "chat:general\tx"]
