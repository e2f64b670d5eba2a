"""How a command ends when it does not succeed: exit codes and the line on standard error."""

from __future__ import annotations

from typing import IO, Any, Final

import click

REFUSED: Final = 1
"""The gateway understood and refused, or failed while it ran."""

USAGE: Final = 2
"""The command line or the settings are wrong; nothing was done."""

UNREACHABLE: Final = 3
"""The gateway cannot be reached."""

INTERRUPTED: Final = 130
"""Stopped by Ctrl-C."""

EXIT_CODES: Final = """\b
Exit codes:
  0    it worked (an ASK that is false worked, too)
  1    the gateway refused: standard error says why
  2    wrong command line or settings
  3    the gateway cannot be reached
  130  stopped by Ctrl-C
"""


_TRUST: Final = (
    "Set SSL_CERT_FILE=DATA_DIR/tls/ca.pem, of a gateway elsewhere to a copy of that file; `edge cert show` says there "
    "which names it is for, and `edge cert init NAME` adds one"
)


class Failure(click.ClickException):
    """A failure told in one line, `edge: what happened and what to do`."""

    exit_code: int  # type: ignore[misc]  # click writes a class variable, and reads it from the instance

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code

    def show(self, file: IO[Any] | None = None) -> None:
        """Write each line of the message to standard error."""
        for line in self.message.splitlines():
            click.echo(f"edge: {line}", file=file, err=True)


def refused(message: str) -> Failure:
    """The gateway said no: exit code 1."""
    return Failure(message, REFUSED)


def misused(message: str) -> Failure:
    """What was asked makes no sense: exit code 2."""
    return Failure(message, USAGE)


def unreachable(what: str, reason: object) -> Failure:
    """Nobody answers, or somebody who may be another: exit code 3. `reason` is an error of the network, or a text."""
    if distrust := getattr(reason, "verify_message", None):  # of ssl.SSLCertVerificationError
        return Failure(
            f"{what} shows a certificate that is not trusted: {str(distrust).rstrip('.')}. {_TRUST}", UNREACHABLE
        )
    reason = getattr(reason, "strerror", None) or reason
    return Failure(
        f"cannot reach the gateway at {what}: {reason}. Is it running (`edge run`)? "
        "--data-dir, --url and --ws say where to look",
        UNREACHABLE,
    )
