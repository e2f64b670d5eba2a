"""Check of the disk of the data directory: space, inodes, kind of file system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, Value, ok, problem, warning
from edge.engine.journal.sqlite_schema import FILE_NAME
from edge.host_state import disk_space

_LEAST: Final = 32 * 1024 * 1024
"""Bytes of free space below which updates may soon be refused."""
_RESERVE: Final = 64 * 1024 * 1024
_LEAST_INODES: Final = 1_000
_PASSING: Final = ("tmpfs", "ramfs", "overlay")
"""File systems that lose their content with a restart of the host or container."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the file system of the data directory: read-only state, type, free space and inodes."""
    place = existing(around.data_dir)
    filesystem = os.statvfs(place)
    if filesystem.f_flag & os.ST_RDONLY:
        yield problem("disk.read_only", place=str(place))
    kind = kind_of(around, place)
    if kind in _PASSING:
        yield warning("disk.passing", kind=kind)
    journal = around.data_dir / FILE_NAME
    needed = (
        around.settings.outbox.max_bytes
        + around.settings.recent.max_bytes
        + _RESERVE
        + 2 * (journal.stat().st_size if journal.exists() else 0)
    )
    yield assess(*disk_space(place), needed)
    # Some file systems, such as Btrfs, have no fixed number of inodes and report 0.
    if filesystem.f_files and filesystem.f_favail < _LEAST_INODES:
        yield warning("disk.inodes", count=filesystem.f_favail, place=str(place))


def assess(free: int, total: int, needed: int) -> Finding:
    """Return the finding for the free space. `needed`: bytes that the gateway may write until it reuses its space."""
    values: dict[str, Value] = {"free": round(free / 1e6), "total": round(total / 1e9, 1)}
    if free < _LEAST:
        return problem("disk.full", **values)
    if free < needed:
        return warning("disk.little", needed=round(needed / 1e6), **values)
    return ok("disk.free", **values)


def existing(path: Path) -> Path:
    """Return the directory, or its nearest existing parent."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def kind_of(around: DoctorContext, place: Path) -> str:
    """Return the type of the file system, or an empty text if not known."""
    found, longest = "", -1
    target = place.resolve()
    for line in (around.text("proc", "self", "mounts") or "").splitlines():
        fields = line.split()
        if len(fields) > 2:
            # /proc/mounts encodes spaces in octal. A later line hides an earlier one of the same directory.
            mount = Path(fields[1].replace("\\040", " "))
            if target.is_relative_to(mount) and len(mount.parts) >= longest:
                found, longest = fields[2], len(mount.parts)
    return found
