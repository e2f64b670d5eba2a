"""The clients of a gateway, as another process sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from edge.security.client_database import ClientDatabase
from edge.security.clients import ClientRegistry


@contextmanager
def clients_of(data_dir: Path) -> Iterator[ClientRegistry]:
    """Return the clients of a data directory; its file is closed afterwards."""
    with closing(ClientDatabase(data_dir)) as store:
        yield ClientRegistry(store)
