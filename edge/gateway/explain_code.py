"""Explanation of an update: the Python code that the engine generates for its operations."""

from __future__ import annotations

from collections.abc import Iterator

from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.engine.updates.update_plan import Modify

_INTERPRETED = "# interpreted: code needs at most one solution, few quads, constant graphs, and no new blank nodes"
_OTHER = "# not generated: long data, LOAD, or an operation on whole graphs"


def explain_code(text: str) -> Iterator[str]:
    """Yield the code of each operation of an update, or the reason why it has none. Raises `EdgeError`."""
    operations = make_engine(EngineSettings()).prepare(UpdateRequest(text)).plan.operations
    for number, operation in enumerate(operations, 1):
        yield f"# Operation {number} of {len(operations)}"
        if not isinstance(operation, Modify):
            yield _OTHER
        else:
            yield _INTERPRETED if operation.code is None else operation.code.text
