"""Where a client continues with the reports of a registered query."""

from __future__ import annotations

from typing import NamedTuple


class ReportPosition(NamedTuple):
    """The last report that a client has."""

    number: int
    of: str | None = None
    """Identifier of the query, from the first message; another one means that an earlier query had this name. None: the
    client does not know it.
    """
