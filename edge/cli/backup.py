"""`edge backup` and `edge restore`: the data directory as one file, and back."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from edge.cli.bindings_table import printable
from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.exit_codes import misused, refused
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.config import Settings

_CODES = """\b
Exit codes:
  0  success
  1  refused, or failed: standard error says why; nothing was changed
  2  wrong command line or settings
"""
_PIPE = "-"
_LEFT = 64 * 1024 * 1024
"""Bytes that a staged backup leaves free on the disk, for the running gateway."""


@click.command(epilog=_CODES)
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@config_option
@data_dir_of_gateway
def backup(target: Path, force: bool, file: Path | None, data_dir: Path | None) -> None:
    """Write a backup of the data directory into FILE (a .tar.gz), or to standard output (-).

    The gateway may run and continues its work. The backup contains the graph, recent values, delayed updates,
    observations that wait for the history, clients, certificates with their keys, mappings, rules and queries, if they
    are in the data directory. Anyone who can read it has all of these, so only its owner may read it (mode 0600). The
    command verifies the copy as the gateway does at its start.

    \b
    edge backup /mnt/usb/gateway-$(date +%F).tar.gz
    edge backup - | ssh attic 'cat > gateway.tar.gz'
    """
    settings = load_settings(file, data_dir).settings
    to_pipe = str(target) == _PIPE
    if to_pipe and sys.stdout.isatty():
        raise misused("a backup is binary: name a file, or redirect standard output")

    from edge.backup import make

    try:
        manifest = make(settings.data_dir, sys.stdout.buffer if to_pipe else target, force=force)
    except EdgeError as error:
        raise refused(printable(error.description)) from None
    if to_pipe:
        sys.stdout.buffer.flush()  # before the message that it is written
    # Standard output contains the archive, so messages go to standard error.
    where = "standard output" if to_pipe else str(target)
    click.echo(
        f"{len(manifest.files)} files, {manifest.size / 1e6:,.1f} MB, written to {printable(where)}", err=to_pipe
    )
    for path in _elsewhere(settings, file):
        click.echo(
            f"edge: not in the backup, because it is outside the data directory, or a link: {printable(str(path))}",
            err=True,
        )


@click.command(epilog=_CODES)
@click.argument(
    "source", metavar="FILE", required=False, type=click.Path(path_type=Path, dir_okay=False, allow_dash=True)
)
@click.option("--replace", is_flag=True, help="Replace a data directory that is not empty. The old one is renamed.")
@click.option("--remove", is_flag=True, help="With --replace: delete the old directory.")
@click.option("--stage", "staged", is_flag=True, help="Check only; the next start of the gateway puts it in place.")
@click.option("--keep-clients", is_flag=True, help="With --stage: keep the clients and certificates of the gateway.")
@click.option("--require-client", metavar="NAME", help="With --stage: refuse a backup without this registered client.")
@click.option("--unstage", is_flag=True, help="Forget a staged backup. Without FILE.")
@click.option("--json", "as_json", is_flag=True, help="With --stage: print the result for programs.")
@config_option
@data_dir_of_gateway
def restore(
    source: Path | None,
    replace: bool,
    remove: bool,
    staged: bool,
    keep_clients: bool,
    require_client: str | None,
    unstage: bool,
    as_json: bool,
    file: Path | None,
    data_dir: Path | None,
) -> None:
    """Restore the data directory from a backup in FILE, or from standard input (-).

    The gateway must not run, except with --stage: the backup is checked and stored in the data directory, and the next
    start of the gateway puts it in place. The files before that are in DATA_DIR/before-restore. If the gateway does not
    start with the backup, it takes these files back, and says so in /health.

    Without --stage the command checks the whole backup before it changes anything. Then it exchanges the
    directory in one step and keeps the old one as DATA_DIR.before-restore. The outbox continues under a new epoch,
    because observations shipped after the backup may have the same numbers (docs/offload.md).

    \b
    sudo systemctl stop edge
    sudo edge restore gateway.tar.gz --replace --data-dir /var/lib/sepa-edge
    sudo systemctl start edge
    """
    if remove and not replace:
        raise misused("--remove requires --replace")
    if staged and replace:
        raise misused("--stage and --replace contradict each other")
    if (keep_clients or require_client or as_json) and not staged:
        raise misused("--keep-clients, --require-client and --json require --stage")
    if (source is None) is not unstage:
        raise misused("name the backup, or - for standard input" if source is None else "--unstage needs no FILE")
    settings = load_settings(file, data_dir).settings
    if source is None:
        _unstage(settings.data_dir)
        return
    if staged:
        _stage(source, settings.data_dir, as_json=as_json, keep_clients=keep_clients, caller=require_client)
        return

    from edge.backup import restore as put_back

    with _opened(source) as archive:
        try:
            most = _room(settings.data_dir.resolve().parent, 0)
            restored = put_back(archive, settings.data_dir, replace=replace, remove=remove, most=most)
        except EdgeError as error:
            raise refused(printable(error.description)) from None
    manifest = restored.manifest
    click.echo(f"{settings.data_dir} is restored to its state of {manifest.made}, with version {manifest.version}")
    if restored.before is not None:
        click.echo(f"the old data directory is {restored.before}")
    if any(entry.path == "clients.sqlite3" for entry in manifest.files):
        click.echo("clients have their permissions of that time: revoke later revocations again (`edge clients list`)")


def _stage(source: Path, data_dir: Path, *, as_json: bool, keep_clients: bool, caller: str | None) -> None:
    from edge.backup import stage

    with _opened(source) as archive:
        try:
            manifest = stage(archive, data_dir, _room(data_dir, _LEFT), keep_clients=keep_clients, caller=caller)
        except EdgeError as error:
            raise refused(printable(error.description)) from None
    if as_json:
        click.echo(json.dumps({"made": manifest.made, "bytes": manifest.size, "version": manifest.version}))
    else:
        click.echo(f"the state of {manifest.made} ({manifest.size / 1e6:,.1f} MB) is put in place by the next start")


def _unstage(data_dir: Path) -> None:
    from edge.backup import unstage

    try:
        found = unstage(data_dir)
    except EdgeError as error:
        raise refused(printable(error.description)) from None
    click.echo("the staged backup is removed" if found else "no backup is staged")


def _room(directory: Path, left: int) -> int:
    """Return the bytes that a backup may take below a directory, or below the nearest one that exists.

    `left`: bytes that stay free.
    """
    from edge.host_state import disk_space

    existing = next(each for each in (directory, *directory.parents) if each.exists())
    return max(0, disk_space(existing)[0] - left)


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
    """Return paths that are not in the backup: settings that point outside the data directory, and links in it."""
    from edge.config.problem_messages import fields

    inside, found = settings.data_dir.absolute(), [] if file is None else [file]
    for key in fields():
        section, _, name = key.rpartition(".")
        value = getattr(getattr(settings, section) if section else settings, name)
        if isinstance(value, Path):
            found.append(value)
    # A backup contains no links. Paths are not resolved here, or a link would look like its target inside.
    links = [path for path in sorted(inside.rglob("*")) if path.is_symlink()]
    return [path for path in found if not path.absolute().is_relative_to(inside)] + links
