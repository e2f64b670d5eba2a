"""Texts of Spark's errors for messages."""

from __future__ import annotations

import re
from typing import Final

_OWN: Final = re.compile(r"spark_offload\.errors\.\w+: ")
"""Begin of the text of an error of this package in a Python worker."""


def error_text(error: BaseException) -> str:
    """Return the first line of the root cause of a Spark error, or "" if the error does not come from Spark.

    Of an error in a Python worker, it is the last line of the traceback.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException, PythonException

    if isinstance(error, Py4JJavaError):
        # Spark wraps the cause in exceptions with general texts, such as a failed job.
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.getMessage() or cause.toString())
    elif isinstance(error, PythonException):
        return _OWN.sub("", str(error).strip().rpartition("\n")[2])
    elif isinstance(error, PySparkException):
        text = str(error)
    else:
        return ""
    return text.strip().partition("\n")[0]


def first_line(error: BaseException) -> str:
    """Return the first line of an error: of its root cause if it comes from Spark."""
    return error_text(error) or str(error).strip().partition("\n")[0] or type(error).__name__
