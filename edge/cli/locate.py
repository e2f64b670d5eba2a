"""Address of the gateway: options, environment, the endpoints file of a data directory, default ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from edge import endpoints
from edge.cli.exit_codes import UNREACHABLE, Failure, misused
from edge.data_directory import configured_data_dir, default_data_dir

_Command = TypeVar("_Command", bound=Callable[..., Any])


def data_dir_option(command: _Command) -> _Command:
    """Add the option for the data directory of a gateway on this machine."""
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="EDGE__DATA_DIR",
        metavar="DIR",
        help="Data directory of a gateway on this machine.  [env: EDGE__DATA_DIR, else EDGE_CONFIG]",
    )(command)


def url_option(command: _Command) -> _Command:
    """Add the option for the address of the HTTP gate."""
    return click.option(
        "--url",
        envvar="EDGE_URL",
        metavar="URL",
        help="Address of the gateway, e.g. http://127.0.0.1:8000.  [env: EDGE_URL]",
    )(command)


def timeout_option(command: _Command) -> _Command:
    """Add the option for the timeout."""
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0.1),
        default=60.0,
        show_default=True,
        help="Seconds to wait for the answer.",
    )(command)


@dataclass(frozen=True)
class GatewayAddresses:
    """Addresses of one gateway: URL by service. Services that it does not offer are missing."""

    known: dict[str, str]
    origin: str

    def get(self, service: str) -> str:
        """Return the URL of "http", "ws" or "mqtt". Raises `Failure` if the gateway does not offer the service."""
        try:
            return self.known[service]
        except KeyError:
            raise Failure(f"the gateway offers no {service} ({self.origin})", UNREACHABLE) from None


def locate(data_dir: Path | None) -> GatewayAddresses:
    """Return the endpoints of the gateway of `data_dir`.

    Without `data_dir` use that of the settings file in `EDGE_CONFIG`, then the default data directory, then the default
    ports, also if this user may not read what the settings file names. Raises `Failure` if a directory is given, also
    by the file, and no gateway runs on it.
    """
    is_given = data_dir is not None
    if data_dir is None:
        try:
            data_dir = configured_data_dir()
        except ValueError as error:
            raise misused(f"{error}; correct EDGE_CONFIG, or name the gateway with --data-dir or --url") from None
    directory = data_dir if data_dir is not None else default_data_dir()
    file = directory / endpoints.NAME
    try:
        return GatewayAddresses(endpoints.read(directory), str(file))
    except (OSError, ValueError) as error:
        # The file belongs to the gateway's user. Without a given directory, the default ports are the better guess.
        is_forbidden = isinstance(error, PermissionError)
        if is_forbidden and is_given:
            raise misused(
                f"this user may not read {file}; run the command as the user that runs the gateway, or give its "
                "address with --url, --ws or --mqtt"
            ) from None
        if data_dir is None or is_forbidden:
            return GatewayAddresses(dict(endpoints.DEFAULTS), "default ports")
        raise Failure(
            f"no gateway runs on {data_dir} ({file.name}: {_reason(error)}); "
            f"start it with `edge run --data-dir {data_dir}`",
            UNREACHABLE,
        ) from None


def http_endpoint(url: str | None, data_dir: Path | None, path: str) -> str:
    """Return the URL of a path of the HTTP gate. Raises `Failure`."""
    base = url if url is not None else locate(data_dir).get("http")
    if "://" not in base:
        raise misused(f'"{base}" is not an address such as http://127.0.0.1:8000')
    return f"{base.rstrip('/')}/{path}"


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not a file of a gateway"
