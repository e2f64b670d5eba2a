"""`edge backup` and `edge restore`: all that must survive as one file, and back."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.failures import misused, refused
from edge.cli.table import printable
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.config import Settings

_CODES = """\b
Exit codes:
  0  it worked
  1  refused, or failed: standard error says why; everything is as it was
  2  wrong command line or settings
"""
_PIPE = "-"


@click.command(epilog=_CODES)
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@config_option
@data_dir_of_gateway
def backup(target: Path, file: Path | None, data_dir: Path | None) -> None:
    """Write a backup of the data directory into FILE (a .tar.gz), or to standard output (-).

    The gateway may run, and is not held up. The backup holds the graph, delayed updates, what waits for the history,
    clients, certificates with their keys, mappings and queries, as far as they are in the data directory. Who has it
    has all of that: it is for its owner alone (0600). It has been verified as the gateway would at its start.

    \b
    edge backup /mnt/usb/gateway-$(date +%F).tar.gz
    edge backup - | ssh attic 'cat > gateway.tar.gz'
    """
    settings = load_settings(file, data_dir).settings
    to_pipe = str(target) == _PIPE
    if to_pipe and sys.stdout.isatty():
        raise misused("a backup is no text for a terminal; name a file, or send it through a pipe")

    from edge.backup import make

    try:
        manifest = make(settings.data_dir, sys.stdout.buffer if to_pipe else target)
    except EdgeError as error:
        raise refused(printable(error.description)) from None
    where = "standard output" if to_pipe else str(target)
    click.echo(f"{len(manifest.files)} files, {manifest.size / 1e6:,.1f} MB, are in {printable(where)}", err=to_pipe)
    for path in _elsewhere(settings, file):
        click.echo(
            f"edge: not in it, since it is not in the data directory, or a link: {printable(str(path))}", err=True
        )


@click.command(epilog=_CODES)
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option(
    "--replace", is_flag=True, help="Also where the data directory is not empty: it is kept beside the new one."
)
@click.option("--remove", is_flag=True, help="With --replace: do not keep it.")
@config_option
@data_dir_of_gateway
def restore(source: Path, replace: bool, remove: bool, file: Path | None, data_dir: Path | None) -> None:
    """Put a backup from FILE, or from standard input (-), in the place of the data directory.

    The gateway must not run. Everything is checked before anything is touched; then the directory is exchanged in one
    step, and what was there before is kept as DATA_DIR.before-restore. What the gateway told the history meanwhile is
    not told apart by its numbers any more, so it goes on under another epoch (docs/offload.md).

    \b
    sudo systemctl stop edge
    sudo edge restore gateway.tar.gz --replace --data-dir /var/lib/sepa-edge
    sudo systemctl start edge
    """
    if remove and not replace:
        raise misused("--remove goes with --replace")
    settings = load_settings(file, data_dir).settings

    from edge.backup import restore as put_back

    with _opened(source) as archive:
        try:
            restored = put_back(archive, settings.data_dir, replace=replace, remove=remove)
        except EdgeError as error:
            raise refused(printable(error.description)) from None
    manifest = restored.manifest
    click.echo(f"{settings.data_dir} is as it was at {manifest.made}, with version {manifest.version}")
    if restored.before is not None:
        click.echo(f"what was there before is in {restored.before}")
    if any(entry.path == "clients.sqlite3" for entry in manifest.files):
        click.echo(
            "clients are as they were then: revoke those once more that were revoked since (`edge clients list`)"
        )


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[IO[bytes]]:
    if str(source) == _PIPE:
        yield sys.stdin.buffer
        return
    try:
        file = source.open("rb")
    except OSError as error:
        raise misused(f"{source} cannot be read: {error.strerror}") from None
    with file:
        yield file


def _elsewhere(settings: Settings, file: Path | None) -> list[Path]:
    """Files and directories that the settings name, and their own, outside of the data directory; links in it."""
    from edge.config.explain import fields

    inside, found = settings.data_dir.absolute(), [] if file is None else [file]
    for key in fields():
        section, _, name = key.rpartition(".")
        value = getattr(getattr(settings, section) if section else settings, name)
        if isinstance(value, Path):
            found.append(value)
    links = [path for path in sorted(inside.rglob("*")) if path.is_symlink()]
    return [path for path in found if not path.absolute().is_relative_to(inside)] + links
