"""Spark's actual message, found among query plans and the stack frames of two languages."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)", re.MULTILINE)
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)+(\S.*)")

_QUERY = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")


def message_of(error: Exception) -> str:
    """What is wrong and where; neither the plan nor a stack."""
    text = str(error).strip()
    raised = _RAISED.findall(text)
    if raised:
        # Python said it, and Spark put both stacks around it. The message of an error of ours needs no class.
        said = str(raised[-1]).strip()
        return said.partition(": ")[2] if said.startswith("topics.") and ": " in said else said
    if isinstance(error, Py4JJavaError):
        # A task failed; the last cause listed is what went wrong first.
        found = _CAUSE.findall(text)
        return str(found[-1]).strip() if found else text.partition("\n")[0]
    if isinstance(error, AnalysisException):
        # The plan follows behind the first line that ends so.
        text = text.partition(";\n")[0]
    # Of a query, its offsets and plan follow.
    text = _QUERY.sub("", text.partition("\n=== Streaming Query ===")[0])
    return text.partition("JVM stacktrace")[0].strip() or type(error).__name__
