"""Faults: errors that must end one request or one subscription, and nothing else."""

from __future__ import annotations

import logging
import uuid
from typing import Final

from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)

_RUST: Final = "pyo3_runtime"
"""Module of the exceptions for panics in Oxigraph. They derive from BaseException, not from Exception."""


def contained(error: BaseException) -> Exception:
    """Return an error as an `Exception` if it concerns only the work that raised it; else re-raise it.

    A panic in Oxigraph becomes a RuntimeError. KeyboardInterrupt, SystemExit and the like end the process.
    """
    if isinstance(error, Exception):
        return error
    # By the name of its module: pyo3 does not export the class.
    if type(error).__module__ == _RUST:
        return RuntimeError(f"Oxigraph panicked: {error}").with_traceback(error.__traceback__)
    raise error


def without_frames(error: Exception) -> Exception:
    """Remove the stack frames from an error that another thread or process will raise.

    Frames can hold an answer of Oxigraph, which must be dropped on the thread that opened it.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


class Incidents:
    """Log of the faults of one update. It logs the same fault of several subscriptions once."""

    _reasons: dict[tuple[type, object], str] | None = None

    def reason(self, error: Exception, doing: str) -> str:
        """Log a fault with its traceback. Return the description for the subscribers.

        `doing`: the operation on the subscription, as a participle.
        """
        if isinstance(error, EdgeError):
            return error.description
        # One defect can hit a thousand subscriptions of the same update.
        key = type(error), _place(error)
        if self._reasons is None:  # one object for each update, nearly all of which have no fault
            self._reasons = {}
        reason = self._reasons.get(key)
        if reason is None:
            incident = uuid.uuid4().hex[:12]
            # The message of the error stays in the log: it can quote data that this client may not read.
            reason = self._reasons[key] = (
                f"Internal error {incident} ({type(error).__name__}) while {doing} this subscription. The gateway's log"
                " has the details. Subscribe again; if that fails too, report the query to the operator"
            )
            _log.error("subscription.fault %s while %s a subscription", incident, doing, exc_info=error)
        return reason


def _place(error: Exception) -> object:
    """Return the code object and line that raised an error."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return None if traceback is None else (traceback.tb_frame.f_code, traceback.tb_lineno)
