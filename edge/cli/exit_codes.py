"""Errors of a command: exit codes, and the message on standard error."""

from __future__ import annotations

import os
import re
from typing import IO, Any, Final

import click

REFUSED: Final = 1
"""The gateway refused the request, or failed while it ran."""

USAGE: Final = 2
"""The command line or the settings are wrong. Nothing was done."""

UNREACHABLE: Final = 3
"""The gateway cannot be reached."""

INTERRUPTED: Final = 130
"""Stopped by Ctrl-C."""

EXIT_CODES: Final = """\b
Exit codes:
  0    success (also for an ASK that is false)
  1    the gateway refused: standard error says why
  2    wrong command line or settings
  3    the gateway cannot be reached
  130  stopped by Ctrl-C
"""


_TRUST: Final = (
    "Set SSL_CERT_FILE=DATA_DIR/tls/ca.pem, or a copy of the file from the gateway's host. `edge cert show` there "
    "lists the names of the certificate, and `edge cert init NAME` adds one"
)


class Failure(click.ClickException):
    """An error with its exit code. The message is `edge: problem and remedy`."""

    exit_code: int  # type: ignore[misc]  # click writes a class variable, and reads it from the instance

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code

    def show(self, file: IO[Any] | None = None) -> None:
        """Write each line of the message to standard error."""
        for line in self.message.splitlines():
            click.echo(f"edge: {line}", file=file, err=True)


def refused(message: str) -> Failure:
    """Return the error for a request that the gateway refused: exit code 1."""
    return Failure(message, REFUSED)


def misused(message: str) -> Failure:
    """Return the error for a wrong command line or wrong settings: exit code 2."""
    return Failure(message, USAGE)


def unreachable(what: str, reason: object) -> Failure:
    """Return the error for a gateway that cannot be reached or is not trusted: exit code 3.

    `reason` is a network error or a text.
    """
    # By attribute: `http_client.NoResponse` has it, too.
    if distrust := getattr(reason, "verify_message", None):  # of ssl.SSLCertVerificationError
        return Failure(
            f"{what} has a certificate that is not trusted: {str(distrust).rstrip('.')}. {_TRUST}", UNREACHABLE
        )
    reason = _network_error(reason) if isinstance(reason, OSError) else reason
    return Failure(
        f"cannot reach the gateway at {what}: {reason}. Is it running (`edge run`)? "
        "--data-dir, --url and --ws set its address",
        UNREACHABLE,
    )


def _network_error(error: OSError) -> str:
    """Return the text of a network error. asyncio replaces the system's text by one of its own with the address."""
    # After attempts at several addresses, as those of localhost, asyncio joins the errors: "[Errno 111] ..., [Errno".
    numbers = [error.errno] if error.errno is not None else map(int, re.findall(r"\[Errno (\d+)\]", str(error)))
    if error.strerror is None or error.strerror.startswith("Connect call failed"):
        return ", ".join(dict.fromkeys(map(os.strerror, numbers))) or str(error)
    return error.strerror
