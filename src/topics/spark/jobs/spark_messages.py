"""Finds Spark's actual message among query plans and the stack frames of two languages."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)", re.MULTILINE)
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)+(\S.*)")

_QUERY = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")


def message_of(error: Exception) -> str:
    """What is wrong and where, without plans and stacks."""
    text = str(error).strip()
    raised = _RAISED.findall(text)
    if raised:
        # Python raised it, and Spark put both stacks around it. Our own errors need no class before the message.
        said = str(raised[-1]).strip()
        return said.partition(": ")[2] if said.startswith("topics.") and ": " in said else said
    if isinstance(error, Py4JJavaError):
        # A task failed; the last cause listed is the first one.
        found = _CAUSE.findall(text)
        return str(found[-1]).strip() if found else text.partition("\n")[0]
    if isinstance(error, AnalysisException):
        # Spark appends the plan after a line that ends in a semicolon.
        text = text.partition(";\n")[0]
    # A streaming query appends its offsets and plan.
    text = _QUERY.sub("", text.partition("\n=== Streaming Query ===")[0])
    return text.partition("JVM stacktrace")[0].strip() or type(error).__name__
