"""Present rights of the client whose rights decide what is announced."""

from __future__ import annotations

import logging
from collections.abc import Callable

from edge.protocol.access import Access
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)


class ClientRights:
    """The rights as they were last read. While they cannot be read, those known before stay."""

    present: Access | None = None
    """None: the client has none."""
    known = False
    """Whether they could be read once. Before, nothing is announced, and nothing is removed."""
    changed = False
    """Whether they have changed. The caller resets it when it has applied the change."""
    unreadable = ""
    """Why they cannot be read at present; empty: they can."""

    def __init__(self, access: Callable[[], Access | None]) -> None:
        """`access`: returns the rights; raises `EdgeError` while they cannot be read."""
        self._access = access

    def look(self) -> None:
        """Read the rights."""
        try:
            rights = self._access()
        except EdgeError as error:
            reason = f"the rights of the client cannot be read: {error.description}"
            if reason != self.unreadable:
                _log.error("announce.rights_unreadable", extra={"reason": reason})
            self.unreadable = reason
            return
        self.unreadable = ""
        if rights is not None and "subscribe" not in rights.actions:
            rights = None
        if not self.known or rights != self.present:
            self.present, self.known, self.changed = rights, True, True
