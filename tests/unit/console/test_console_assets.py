"""The console's files: one page, one script, small, and joined without a name used twice."""

import re
from collections import Counter
from pathlib import Path

import pytest

import topics.console
from topics.console.assets import Assets, join, load

FOLDER = Path(topics.console.__file__).parent
MODULES = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.js"))}
LINES_MAX = 600
BYTES_MAX = 300 * 1024
ENDINGS = ("*.js", "*.css", "*.html")


@pytest.fixture(scope="module")
def assets() -> Assets:
    return load()


def test_the_console_is_small(assets: Assets) -> None:
    assert len(assets.page) + len(assets.script) < BYTES_MAX


def test_every_module_is_in_the_script(assets: Assets) -> None:
    script = assets.script.decode()
    assert [name for name in MODULES if f"// {name}\n" not in script] == []


def test_nothing_is_left_to_import(assets: Assets) -> None:
    assert re.findall(rb"^\s*(?:import|export)\b.*$", assets.script, re.MULTILINE) == []


def test_no_name_is_used_at_the_top_of_two_modules() -> None:
    declared = re.compile(r"^(?:export )?(?:async function|function|class|const|let) (\w+)", re.MULTILINE)
    names = Counter(name for source in MODULES.values() for name in declared.findall(source))
    assert [name for name, uses in names.items() if uses > 1] == []


def test_what_a_module_imports_is_exported_there() -> None:
    exported = {
        name: set(re.findall(r"^export (?:async function|function|class|const|let) (\w+)", source, re.MULTILINE))
        for name, source in MODULES.items()
    }
    for name, source in MODULES.items():
        for names, file in re.findall(r'^import \{([^}]*)\} from "\./(.*)";', source, re.MULTILINE):
            assert {one.strip() for one in names.split(",")} <= exported[file], (name, file)


def test_what_a_module_imports_it_uses() -> None:
    for name, source in MODULES.items():
        body = re.sub(r"^import .*$", "", source, flags=re.MULTILINE)
        for names, _ in re.findall(r'^import \{([^}]*)\} from "\./(.*)";', source, re.MULTILINE):
            assert [one.strip() for one in names.split(",") if not re.search(rf"\b{one.strip()}\b", body)] == [], name


def test_a_module_comes_after_those_it_imports() -> None:
    joined = join({"main.js": 'import { a } from "./a.js";\nb(a);\n', "a.js": "export const a = 1;\n"})
    assert joined == "// a.js\nconst a = 1;\n\n// main.js\nb(a);\n"


@pytest.mark.parametrize("name", sorted(path.name for ending in ENDINGS for path in FOLDER.glob(ending)))
def test_a_file_has_a_size_one_can_read(name: str) -> None:
    assert (FOLDER / name).read_text().count("\n") <= LINES_MAX


def test_the_sources_make_no_html_and_load_nothing_from_elsewhere() -> None:
    everything = "\n".join([*MODULES.values(), (FOLDER / "console.css").read_text()])
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "token="):
        assert word not in everything
    assert set(re.findall(r"https?://[^\s\"')]+", everything)) == {"http://www.w3.org/2000/svg"}


def test_the_policy_allows_no_inline_code_and_the_styles_by_their_hash_alone(assets: Assets) -> None:
    policy = assets.policy.decode()
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert re.search(r"style-src 'sha256-[A-Za-z0-9+/]{43}='", policy)
