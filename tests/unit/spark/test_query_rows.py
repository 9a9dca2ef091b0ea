"""How the rows of a query are printed."""

import json

import pytest
from pyspark.sql import Row

from topics.cli.pipeline_query import print_csv, print_json
from topics.cli.values import InvalidArguments


def test_numbers_json_does_not_have_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(float("nan"), [1.5, float("-inf")]), (2.5, {"x": float("inf"), "y": Row(z=float("nan"))})]
    assert print_json(["a", "b"], rows) == 2
    printed = [json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().out.splitlines()]
    assert printed == [{"a": None, "b": [1.5, None]}, {"a": 2.5, "b": {"x": None, "y": {"z": None}}}]


def test_two_columns_of_one_name_are_no_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidArguments, match='two columns are called "n"'):
        print_json(["n", "m", "n"], [(1, 2, 3)])
    with pytest.raises(InvalidArguments, match='two columns are called "n"'):
        print_json(["a"], [(Row("n", "n")(1, 2),)])
    assert capsys.readouterr().out == ""
    print_csv(["n", "n"], [(1, 2)])
    assert capsys.readouterr().out.split() == ["n,n", "1,2"]
