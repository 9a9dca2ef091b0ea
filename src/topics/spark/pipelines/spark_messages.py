"""Spark's actual message, found among query plans and the stack frames of two languages."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)", re.MULTILINE)


def message_of(error: Exception) -> str:
    """What is wrong and where; neither the plan nor a stack."""
    text = str(error).strip()
    if isinstance(error, Py4JJavaError):
        # A task failed; the last cause listed is what went wrong first.
        found = _CAUSE.findall(text)
        return str(found[-1]).strip() if found else text.partition("\n")[0]
    if isinstance(error, AnalysisException):
        # The plan follows behind the first line that ends so.
        text = text.partition(";\n")[0]
    return text.partition("JVM stacktrace")[0].strip() or type(error).__name__
