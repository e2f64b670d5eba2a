"""Access of commands to the clients of a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edge.cli.config import load_settings
from edge.cli.exit_codes import misused, refused
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.security.security import Security


@contextmanager
def opened(file: Path | None, data_dir: Path | None) -> Iterator[Security]:
    """Open the client data in the data directory. Errors become `Failure` with their exit code."""
    settings = load_settings(file, data_dir).settings

    from edge.security.security import Security

    try:
        # Two blocks, because their exit codes differ: data that cannot be opened, and a request that is refused.
        security = Security(settings.data_dir, settings.security)
    except EdgeError as error:
        raise misused(error.description) from None
    try:
        yield security
    except EdgeError as error:
        raise refused(error.description) from None
    finally:
        security.close()


def check_issuer(url: str, file: Path | None, data_dir: Path | None) -> None:
    """Raise `Failure` for an authorization server that the gateway does not trust: its clients could not connect."""
    known = load_settings(file, data_dir).settings.issuer.url
    if url and url != known:
        says = f'it is "{known}"' if known else "it is not set"
        raise misused(f'"{url}" is not the issuer.url of the settings, {says}; --config names the settings file')
