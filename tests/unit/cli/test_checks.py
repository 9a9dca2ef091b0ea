"""What `topics doctor` finds."""

import sys
from pathlib import Path

import pytest

from topics.cli.checks import Level, spark

pytest.importorskip("pyspark", reason="the check is for those who have Spark")


def a_python(directory: Path, status: int) -> None:
    path = directory / "python3"
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)


def test_the_python_of_an_inactive_environment_is_named_with_its_error_and_cure(tmp_path: Path) -> None:
    a_python(tmp_path, status=1)
    (found,) = spark({"PATH": str(tmp_path)})
    assert found.level is Level.ADVICE
    assert f"{tmp_path}/python3, which does not have this package" in found.found
    assert "DATA_SOURCE_NOT_FOUND" in found.found
    assert f"PYSPARK_PYTHON={sys.executable}" in found.advice


def test_the_python_that_was_named_counts(tmp_path: Path) -> None:
    a_python(tmp_path, status=0)
    (found,) = spark({"PATH": "/nowhere", "PYSPARK_PYTHON": f"{tmp_path}/python3"})
    assert found.level is Level.GOOD


def test_a_python_that_is_not_there_is_said_to_be_so() -> None:
    (found,) = spark({"PATH": "/nowhere", "PYSPARK_PYTHON": "python9"})
    assert "Spark runs python9, which does not exist" in found.found
