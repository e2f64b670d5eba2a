"""The clients of a gateway, as another process sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from edge.security.client_database import Store
from edge.security.clients import Clients


@contextmanager
def clients_of(data_dir: Path) -> Iterator[Clients]:
    """Return the clients of a data directory; its file is closed afterwards."""
    with closing(Store(data_dir)) as store:
        yield Clients(store)
