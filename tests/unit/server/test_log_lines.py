import json
import logging
import sys

from topics.server.log_lines import JsonLines


def entry(message: str, *args: object, error: bool = False) -> logging.LogRecord:
    info = sys.exc_info() if error else None
    return logging.LogRecord("topics.api", logging.WARNING, __file__, 1, message, args, info)


def test_an_entry_is_an_object_with_its_arguments_filled_in() -> None:
    line = json.loads(JsonLines().format(entry('%d "connections"', 3)))
    assert (line["level"], line["logger"], line["message"]) == ("warning", "topics.api", '3 "connections"')
    assert line["ts"] > 1_700_000_000_000


def test_a_traceback_stays_on_the_line_of_its_entry() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        line = JsonLines().format(entry("failed", error=True))
    assert "\n" not in line
    assert "ValueError: two\nlines" in json.loads(line)["exception"]
