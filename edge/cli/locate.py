"""Where the gateway is: options, environment, the endpoints file of a data directory, default ports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from edge.cli.failures import UNREACHABLE, Failure

ENDPOINTS: Final = "endpoints.json"
"""File in the data directory that a running gateway keeps."""

DEFAULTS: Final = {
    "http": "http://127.0.0.1:8000",
    "ws": "ws://127.0.0.1:9000/subscribe",
    "mqtt": "mqtt://127.0.0.1:1883",
}

_Command = TypeVar("_Command", bound=Callable[..., Any])


def data_dir_option(command: _Command) -> _Command:
    """The option that names the data directory of a gateway on this machine."""
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="EDGE__DATA_DIR",
        metavar="DIR",
        help="Data directory of a gateway on this machine.  [env: EDGE__DATA_DIR]",
    )(command)


@dataclass(frozen=True)
class Endpoints:
    """Where one gateway listens. Values are URLs; a service that it does not offer is missing."""

    known: dict[str, str]
    origin: str

    def get(self, service: str) -> str:
        """The URL of "http", "ws" or "mqtt". Raises `Failure` where the gateway has none."""
        try:
            return self.known[service]
        except KeyError:
            raise Failure(f"the gateway offers no {service} ({self.origin})", UNREACHABLE) from None


def locate(data_dir: Path | None) -> Endpoints:
    """The endpoints of the gateway of `data_dir`; without one, of the default data directory, else default ports.

    Raises `Failure` where `data_dir` is given and no gateway runs on it.
    """
    directory = data_dir if data_dir is not None else _default_dir()
    file = directory / ENDPOINTS
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(known, dict):
            return Endpoints({str(name): str(url) for name, url in known.items()}, str(file))
        raise Failure(f"{file} is not what a gateway writes; delete it and start the gateway again", UNREACHABLE)
    except (OSError, ValueError) as error:
        if data_dir is None:
            return Endpoints(dict(DEFAULTS), "default ports")
        raise Failure(
            f"no gateway runs on {data_dir} ({file.name}: {_reason(error)}); "
            f"start it with `edge run --data-dir {data_dir}`",
            UNREACHABLE,
        ) from None


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "not JSON"


def _default_dir() -> Path:
    from edge.config.keys import default_data_dir  # late: pydantic takes a while to import

    return default_data_dir()
