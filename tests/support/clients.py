"""The clients of a gateway, as another process sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from edge.security.clients import Clients
from edge.security.store import Store


@contextmanager
def clients_of(data_dir: Path) -> Iterator[Clients]:
    """Return the clients of a data directory; its file is closed afterwards."""
    with closing(Store(data_dir)) as store:
        yield Clients(store)
