"""All states of a directory tree that a power cut can leave, from the recorded operations of real code.

The code runs on real files, while `os.rename`, `os.unlink`, `os.mkdir`, `os.rmdir`, `os.fsync` and `os.sync` are
recorded together with the tree after them. A power cut between any two of them preserves synchronized changes, and any
subset of the others:

- a name in a directory is on the disk when the directory is synchronized, and content when the file is, not the
reverse;

- any of the other changes of one directory may be lost, in any order; a rename is one change;

- an unsynchronized file has its old content (none, if it is new) or its new content.

Journals of file systems allow fewer states.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

State = tuple[tuple[str, bytes | None], ...]
"""Path below the root and content, None for a directory, sorted."""
_ALL = 5
"""Up to this number of changes in one directory, all subsets are tried; beyond it, all prefixes, and all without one.
"""


def state(root: Path) -> State:
    """Return the state of the tree."""
    found = [(path.relative_to(root).as_posix(), path) for path in root.rglob("*")]
    return tuple(sorted((name, None if path.is_dir() else path.read_bytes()) for name, path in found))


def build(root: Path, wanted: State) -> None:
    """Make the tree, replacing the existing one."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name, content in wanted:
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)


@dataclass
class _Node:
    """A file or directory, by its inode."""

    content: bytes | None
    names: dict[str, int] = field(default_factory=dict)


_Tree = dict[int, _Node]
_Change = dict[str, int | None]
"""Maps a name to its inode from then on."""


class Recorder:
    """The changes of a tree, and the states that a power cut can leave."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = root.stat().st_ino
        self.open: dict[int, int] = {}
        self.now = self._scan()
        self.nodes = dict(self.now)
        self.durable = {inode: dict(node.names) for inode, node in self.now.items()}
        self.contents = {inode: node.content for inode, node in self.now.items()}
        self.pending: dict[int, list[_Change]] = {}
        self.written: dict[int, list[bytes]] = {}
        self.seen: dict[State, None] = {}
        self.last: list[State] = []
        self._collect()

    def _scan(self) -> _Tree:
        found: _Tree = {}
        for path in [self.root, *self.root.rglob("*")]:
            inode = path.stat().st_ino
            if inode not in self.open:  # while it is open, no other file gets its number
                self.open[inode] = os.open(path, os.O_RDONLY)
            directory = path.is_dir()
            names = {one.name: one.stat().st_ino for one in path.iterdir()} if directory else {}
            found[inode] = _Node(None if directory else path.read_bytes(), names)
        return found

    def close(self) -> None:
        """Close the files."""
        for descriptor in self.open.values():
            os.close(descriptor)

    def changed(self, *, at_once: bool = False) -> None:
        """Record a change; `at_once`: the changes of a directory are one change."""
        before, self.now = self.now, self._scan()
        for inode, node in self.now.items():
            known = before.get(inode) or self.nodes.get(inode) or _Node(None if node.content is None else b"")
            self.nodes[inode] = node
            if node.content is not None and node.content != known.content:
                self.written.setdefault(inode, []).append(node.content)
            self.durable.setdefault(inode, {})
            self.contents.setdefault(inode, None if node.content is None else b"")
            differ = {
                name: node.names.get(name)
                for name in {*known.names, *node.names}
                if known.names.get(name) != node.names.get(name)
            }
            if at_once and differ:
                self.pending.setdefault(inode, []).append(differ)
            else:
                self.pending.setdefault(inode, []).extend({name: target} for name, target in sorted(differ.items()))
        self._collect()

    def synchronised(self, inode: int) -> None:
        """Record that the content of a file, or the names of a directory, are on the disk."""
        self.changed()
        if inode in self.now:
            self._settle(inode)
            self._collect()

    def all_synchronised(self) -> None:
        """Record that everything is on the disk."""
        self.changed()
        for inode in list(self.now):
            self._settle(inode)
        self._collect()

    def _settle(self, inode: int) -> None:
        for change in self.pending.pop(inode, []):
            _apply(self.durable[inode], change)
        if self.written.pop(inode, None):
            self.contents[inode] = self.nodes[inode].content

    def _collect(self) -> None:
        """Add the states of a power cut at this moment."""
        self.last = []
        inodes = [inode for inode in self.pending if self.pending[inode]]
        files = list(self.written)
        for chosen in itertools.product(*(_selections(self.pending[inode]) for inode in inodes)):
            names = {inode: dict(entries) for inode, entries in self.durable.items()}
            for inode, changes in zip(inodes, chosen, strict=True):
                for change in changes:
                    _apply(names[inode], change)
            for contents in itertools.product(*([self.contents[inode], *self.written[inode]] for inode in files)):
                held = {**self.contents, **dict(zip(files, contents, strict=True))}
                left = tuple(sorted(self._walk(self.top, "", names, held)))
                self.seen[left] = None
                self.last.append(left)

    def _walk(
        self, inode: int, path: str, names: dict[int, dict[str, int]], held: dict[int, bytes | None]
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, child in names[inode].items():
            yield f"{path}{name}", held[child]
            if held[child] is None:
                yield from self._walk(child, f"{path}{name}/", names, held)


def _apply(names: dict[str, int], change: _Change) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _selections(changes: list[_Change]) -> list[list[_Change]]:
    if len(changes) <= _ALL:
        return [
            [change for change, taken in zip(changes, mask, strict=True) if taken]
            for mask in itertools.product((False, True), repeat=len(changes))
        ]
    return [changes[:end] for end in range(len(changes) + 1)] + [
        changes[:lost] + changes[lost + 1 :] for lost in range(len(changes))
    ]


def power_cuts(root: Path, action: Callable[[], object]) -> list[State]:
    """Run a function; return the states of `root` that a power cut can leave at any moment of it."""
    return list(_watched(root, action).seen)


def power_cuts_after(root: Path, action: Callable[[], object]) -> list[State]:
    """Run a function; return the states after a power cut right after it: one state if all changes are durable."""
    return list(dict.fromkeys(_watched(root, action).last))


def _watched(root: Path, action: Callable[[], object]) -> Recorder:
    recorder = Recorder(root)
    try:
        with _recorded(recorder):
            action()
        recorder.changed()
    finally:
        recorder.close()
    return recorder


@contextmanager
def _recorded(recorder: Recorder) -> Iterator[None]:
    real = {name: getattr(os, name) for name in ("rename", "replace", "unlink", "remove", "mkdir", "rmdir")}
    fsync, sync, run = os.fsync, os.sync, subprocess.run

    def recording(name: str) -> Callable[..., None]:
        def call(*arguments: object, **options: object) -> None:
            recorder.changed()
            real[name](*arguments, **options)
            recorder.changed(at_once=True)

        return call

    def synchronise(descriptor: int) -> None:
        fsync(descriptor)
        recorder.synchronised(os.fstat(descriptor).st_ino)

    def all_of_it() -> None:
        recorder.all_synchronised()  # without the real call, which would wait for all disks of this machine

    def ran(*arguments: object, **options: object) -> object:
        done = run(*arguments, **options)  # type: ignore[call-overload]
        recorder.changed()
        return done

    try:
        for name in real:
            setattr(os, name, recording(name))
        os.fsync, os.sync, subprocess.run = synchronise, all_of_it, ran  # type: ignore[assignment]
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        os.fsync, os.sync, subprocess.run = fsync, sync, run  # type: ignore[assignment]
