"""A simulated disk: a SQLite VFS over real files that knows which writes a power cut may lose.

SQLite reads and writes ordinary files below one directory, through callbacks in Python. The disk records every write
since the last sync of its file, so that a test can cut the power: each unsynced write is then kept, lost, or torn at a
sector, independently of the others, which also covers any order in which a medium writes them. A process that is
killed loses nothing that it wrote. Faults on demand: no room, read errors, failing syncs, and the end of the process
or of the power at the n-th operation from now.

https://www.sqlite.org/vfs.html, https://www.sqlite.org/c3ref/io_methods.html
"""

# Paths are bytes or text of SQLite here, thousands of times in a test.
# ruff: noqa: PTH100, PTH108, PTH110, PTH202

from __future__ import annotations

import ctypes
import itertools
import os
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

SECTOR = 512
"""Bytes that a medium writes whole or not at all."""

_OK, _BUSY, _NOTFOUND = 0, 5, 12
_IOERR = 10
_READ, _SHORT_READ, _WRITE, _FSYNC, _DELETE_NOENT = (
    _IOERR | 1 << 8,
    _IOERR | 2 << 8,
    _IOERR | 3 << 8,
    _IOERR | 4 << 8,
    _IOERR | 23 << 8,
)
_FULL, _CANTOPEN = 13, 14
_OPEN_READONLY, _OPEN_CREATE, _OPEN_DELETEONCLOSE = 0x1, 0x4, 0x8
_SHM_UNLOCK, _SHM_LOCK, _SHM_EXCLUSIVE = 1, 2, 8
_POWERSAFE_OVERWRITE = 0x1000
"""Data next to an interrupted write stays unchanged: SQLite's assumption on Unix."""
_UNLOCKED, _SHARED, _RESERVED, _PENDING, _EXCLUSIVE = range(5)

_int, _long, _pointer, _text = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p


class _SqliteFile(ctypes.Structure):
    """SQLite's `sqlite3_file`. Its address identifies the connection while it is open."""

    _fields_: ClassVar = [("methods", _pointer)]


_handle = _pointer
"""The address of an `sqlite3_file`. SQLite calls tens of thousands of times a second, and an integer is cheapest."""


def _method(*arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(_int, *arguments)


_IO: dict[str, Any] = {
    "close": _method(_handle),
    "read": _method(_handle, _pointer, _int, _long),
    "write": _method(_handle, _pointer, _int, _long),
    "truncate": _method(_handle, _long),
    "sync": _method(_handle, _int),
    "file_size": _method(_handle, _pointer),
    "lock": _method(_handle, _int),
    "unlock": _method(_handle, _int),
    "check_reserved_lock": _method(_handle, _pointer),
    "file_control": _method(_handle, _int, _pointer),
    "sector_size": _method(_handle),
    "device_characteristics": _method(_handle),
    "shm_map": _method(_handle, _int, _int, _int, _pointer),
    "shm_lock": _method(_handle, _int, _int, _int),
    "shm_barrier": ctypes.CFUNCTYPE(None, _handle),
    "shm_unmap": _method(_handle, _int),
}


class _IoMethods(ctypes.Structure):
    _fields_: ClassVar = [("version", _int), *_IO.items()]


_VFS: dict[str, Any] = {
    "open_file": _method(_pointer, _text, _handle, _int, _pointer),
    "delete": _method(_pointer, _text, _int),
    "access": _method(_pointer, _text, _int, _pointer),
    "full_pathname": _method(_pointer, _text, _int, _pointer),
}
# Loading of extensions, randomness, time: delegated to the default VFS.
_INHERITED = ("dl_open", "dl_error", "dl_sym", "dl_close", "randomness", "sleep", "current_time", "get_last_error")


class _Vfs(ctypes.Structure):
    _fields_: ClassVar = [
        ("version", _int),
        ("size_of_file", _int),
        ("longest_path", _int),
        ("next", _pointer),
        ("name", _text),
        ("data", _pointer),
        *_VFS.items(),
        *((name, _pointer) for name in _INHERITED),
    ]


class SimulatedFile:
    """One file: its content on the medium, its unsynced writes, and the locks of its connections."""

    def __init__(self, path: str, *, durable: bool) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.durable = durable
        """Whether its name is on the medium, too."""
        self.unsynced: list[tuple[int, bytes | None, bytes]] = []
        """Writes since the last sync: offset, data (None: truncated there), previous content."""
        self.levels: dict[int, int] = {}
        """The lock on the file, by connection."""
        self.shared_memory: dict[int, Any] = {}
        self.shm_locks: dict[int, dict[int, bool]] = {}
        """Whether the lock is exclusive, by slot and connection."""

    def undo(self) -> None:
        """Restore the content of the medium."""
        for offset, written, before in reversed(self.unsynced):
            if written is not None:
                size = os.fstat(self.descriptor).st_size
                os.pwrite(self.descriptor, before, offset)
                if offset + len(before) < min(size, offset + len(written)):
                    os.ftruncate(self.descriptor, offset + len(before))
            else:
                os.pwrite(self.descriptor, before, offset)

    def cut(self, chance: random.Random) -> None:
        """Lose some of the writes that were not synced."""
        self.undo()
        unsynced, self.unsynced = self.unsynced, []
        fate = chance.choice(("all", "none", "each"))
        for offset, written, _ in unsynced:
            if fate == "none" or (fate == "each" and chance.random() < 0.5):
                continue
            if written is None:
                os.ftruncate(self.descriptor, offset)
                continue
            if fate == "each" and chance.random() < 0.3:
                written = self._torn(written, offset, chance)
            os.pwrite(self.descriptor, written, offset)

    def lose(self, positions: Iterable[int]) -> None:
        """Cut the power so that exactly these unsynced writes are lost."""
        lost = set(positions)
        self.undo()
        unsynced, self.unsynced = self.unsynced, []
        for position, (offset, written, _) in enumerate(unsynced):
            if written is not None and position not in lost:
                os.pwrite(self.descriptor, written, offset)

    def _torn(self, written: bytes, offset: int, chance: random.Random) -> bytes:
        """Return a write that is torn at a sector: its beginning, then the previous content."""
        first = -(-(offset + 1) // SECTOR) * SECTOR - offset
        ends = range(first, len(written), SECTOR)
        return written[: chance.choice(ends)] if ends else b""


class SimulatedDisk:
    """All files that SQLite opens in `with disk.mounted():`.

    One disk serves a whole process, since SQLite may call back as long as any connection lives.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libsqlite3.so.0")
        self._library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        self._files: dict[str, SimulatedFile] = {}
        self._open: dict[int, SimulatedFile] = {}
        self._read_only: set[int] = set()
        """Connections that must not write."""
        self._numbers = itertools.count(1)
        self._io = _IoMethods(2, **{name: kind(getattr(self, f"_{name}")) for name, kind in _IO.items()})
        default = self._library.sqlite3_vfs_find(None)
        inherited = {name: getattr(default.contents, name) for name in _INHERITED}
        own = {name: kind(getattr(self, f"_{name}")) for name, kind in _VFS.items()}
        self._default = default
        self._vfs = _Vfs(1, ctypes.sizeof(_SqliteFile), 1024, None, b"simulated", None, **own, **inherited)
        self.operations = 0
        """Number of changing operations so far."""
        self.stops_at: int | None = None
        """The operation at which the process ends: later ones have no effect."""
        self.last_operation_counts = False
        """Whether that operation itself takes effect."""
        self.full = False
        self.failing_reads = False
        self.failing_syncs = False
        self.before_sync: Callable[[str], None] = lambda _: None
        """Called with the path of a file before it is synced."""

    @property
    def stopped(self) -> bool:
        """Whether the process has ended."""
        return self.stops_at is not None and self.operations >= self.stops_at

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Have SQLite use this disk for every file."""
        self._library.sqlite3_vfs_register(ctypes.byref(self._vfs), 1)
        try:
            yield
        finally:
            self._library.sqlite3_vfs_register(self._default, 1)
            self._forget()

    def restart(self, chance: random.Random, *, power_cut: bool) -> None:
        """End the process with its locks and mappings; another one can start."""
        for path, storage in list(self._files.items()):
            if power_cut:
                storage.cut(chance)
                if not storage.durable and chance.random() < 0.5:
                    os.close(storage.descriptor)
                    os.unlink(path)
                    del self._files[path]
                    continue
                storage.durable = True
            storage.levels.clear()
            storage.shm_locks.clear()
            storage.shared_memory = {}
        self._open.clear()
        self._read_only.clear()
        self.heal()

    def file(self, path: Path) -> SimulatedFile:
        """Return a file that SQLite has opened."""
        return self._files[str(path)]

    def synced(self, path: str) -> None:
        """Record that a file was synced through its descriptor."""
        if not self.stopped and path in self._files:
            self._files[path].unsynced.clear()

    def _forget(self) -> None:
        for storage in self._files.values():
            os.close(storage.descriptor)
        self._files.clear()
        self._open.clear()
        self._read_only.clear()
        self.heal()

    def heal(self) -> None:
        """Stop all faults."""
        self.stops_at = None
        self.last_operation_counts = False
        self.full = self.failing_reads = self.failing_syncs = False
        self.before_sync = lambda _: None

    def _changes(self) -> bool:
        """Count an operation. Return False if the process has ended before it."""
        if self.stopped:
            return False
        self.operations += 1
        return not self.stopped or self.last_operation_counts

    # sqlite3_vfs

    def _find(self, name: bytes | None, flags: int) -> SimulatedFile | None:
        path = os.fsdecode(name) if name else f"{tempfile.gettempdir()}/temporary-{os.getpid()}-{next(self._numbers)}"
        storage = self._files.get(path)
        if storage is None:
            exists = os.path.exists(path)
            if not exists and (not flags & _OPEN_CREATE or not self._changes()):
                return None
            storage = self._files[path] = SimulatedFile(path, durable=exists)
        return storage

    def _open_file(self, _: int, name: bytes | None, file: int, flags: int, out: int) -> int:
        opened = _SqliteFile.from_address(file)
        opened.methods = None
        storage = self._find(name, flags)
        if storage is None:
            return _CANTOPEN
        self._open[file] = storage
        if flags & _OPEN_READONLY:
            self._read_only.add(file)
        opened.methods = ctypes.addressof(self._io)
        if out:
            _int.from_address(out).value = flags
        return _OK

    def _full_pathname(self, _: int, name: bytes, room: int, out: int) -> int:
        path = os.path.abspath(name) + b"\0"
        if len(path) > room:
            return _CANTOPEN
        ctypes.memmove(out, path, len(path))
        return _OK

    def _delete(self, _: int, name: bytes, sync: int) -> int:
        path = os.fsdecode(name)
        if not os.path.exists(path):
            return _DELETE_NOENT
        if not self._changes():
            return _IOERR
        # Deletions count as durable at once: SQLite needs only that they happen.
        storage = self._files.pop(path, None)
        if storage is not None:
            os.close(storage.descriptor)
        os.unlink(path)
        return _OK

    def _access(self, _: int, name: bytes, flags: int, out: int) -> int:
        path = os.fsdecode(name)
        _int.from_address(out).value = int(os.path.exists(path) and (bool(flags) or os.path.getsize(path) > 0))
        return _OK

    # sqlite3_io_methods

    def _close(self, file: int) -> int:
        storage = self._open.pop(file, None)
        self._read_only.discard(file)
        if storage is not None:
            storage.levels.pop(file, None)
            for holders in storage.shm_locks.values():
                holders.pop(file, None)
            if not storage.unsynced and storage.durable and storage not in self._open.values():
                os.close(storage.descriptor)
                del self._files[storage.path]
        return _OK

    def _read(self, file: int, buffer: int, length: int, offset: int) -> int:
        storage = self._open.get(file)
        if storage is None or self.failing_reads:
            return _READ
        data = os.pread(storage.descriptor, length, offset)
        ctypes.memmove(buffer, data, len(data))
        if len(data) == length:
            return _OK
        ctypes.memset(buffer + len(data), 0, length - len(data))
        return _SHORT_READ

    def _write(self, file: int, buffer: int, length: int, offset: int) -> int:
        storage = self._open.get(file)
        if storage is None or file in self._read_only or not self._changes():
            return _WRITE
        if self.full and offset + length > os.fstat(storage.descriptor).st_size:
            return _FULL
        data = ctypes.string_at(buffer, length)
        storage.unsynced.append((offset, data, os.pread(storage.descriptor, length, offset)))
        os.pwrite(storage.descriptor, data, offset)
        return _OK

    def _truncate(self, file: int, size: int) -> int:
        storage = self._open.get(file)
        if storage is None or file in self._read_only or not self._changes():
            return _WRITE
        storage.unsynced.append((size, None, os.pread(storage.descriptor, 1 << 30, size)))
        os.ftruncate(storage.descriptor, size)
        return _OK

    def _sync(self, file: int, _: int) -> int:
        storage = self._open.get(file)
        if storage is not None:
            self.before_sync(storage.path)
        if storage is None or self.failing_syncs or not self._changes():
            return _FSYNC
        storage.unsynced.clear()
        storage.durable = True
        return _OK

    def _file_size(self, file: int, out: int) -> int:
        storage = self._open.get(file)
        if storage is None:
            return _IOERR
        _long.from_address(out).value = os.fstat(storage.descriptor).st_size
        return _OK

    def _lock(self, file: int, level: int) -> int:
        storage = self._open.get(file)
        if storage is None:
            return _IOERR
        others = [held for holder, held in storage.levels.items() if holder != file]
        if level == _SHARED and any(held >= _PENDING for held in others):
            return _BUSY
        if level >= _RESERVED and any(held >= _RESERVED for held in others):
            return _BUSY
        if level == _EXCLUSIVE and any(held >= _SHARED for held in others):
            storage.levels[file] = _PENDING
            return _BUSY
        storage.levels[file] = max(level, storage.levels.get(file, _UNLOCKED))
        return _OK

    def _unlock(self, file: int, level: int) -> int:
        storage = self._open.get(file)
        if storage is not None:
            storage.levels[file] = level
        return _OK

    def _check_reserved_lock(self, file: int, out: int) -> int:
        storage = self._open.get(file)
        _int.from_address(out).value = int(
            storage is not None and any(held >= _RESERVED for held in storage.levels.values())
        )
        return _OK

    def _file_control(self, file: int, operation: int, argument: int) -> int:
        return _NOTFOUND

    def _sector_size(self, file: int) -> int:
        return SECTOR

    def _device_characteristics(self, file: int) -> int:
        return _POWERSAFE_OVERWRITE

    def _shm_map(self, file: int, region: int, size: int, extend: int, out: int) -> int:
        storage = self._open.get(file)
        if storage is None:
            return _IOERR
        if region not in storage.shared_memory and extend:
            storage.shared_memory[region] = ctypes.create_string_buffer(size)
        memory = storage.shared_memory.get(region)
        _pointer.from_address(out).value = None if memory is None else ctypes.addressof(memory)
        return _OK

    def _shm_lock(self, file: int, offset: int, count: int, flags: int) -> int:
        storage = self._open.get(file)
        if storage is None:
            return _IOERR
        slots = [storage.shm_locks.setdefault(slot, {}) for slot in range(offset, offset + count)]
        if flags & _SHM_UNLOCK:
            for holders in slots:
                holders.pop(file, None)
            return _OK
        exclusive = bool(flags & _SHM_EXCLUSIVE)
        for holders in slots:
            for holder, held in holders.items():
                if holder != file and (exclusive or held):
                    return _BUSY
        for holders in slots:
            holders[file] = exclusive
        return _OK

    def _shm_barrier(self, file: int) -> None:
        pass

    def _shm_unmap(self, file: int, delete: int) -> int:
        storage = self._open.get(file)
        if storage is not None:
            for holders in storage.shm_locks.values():
                holders.pop(file, None)
            if delete:
                storage.shared_memory = {}
        return _OK


DISK = SimulatedDisk()
"""The disk of this process."""
