"""What a line of the log looks like: text for people, or a JSON object for programs (TOPICS_LOG_FORMAT)."""

import logging

from msgspec.json import encode

TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonLines(logging.Formatter):
    """An object a line; `ts` is in ms since 1970, as everywhere else.

    A traceback is one string in it, so a line is always a whole entry.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return encode(line).decode()


def write_log(level: str, log_format: str) -> None:
    """Sends the log of this process to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level, handlers=[handler])
