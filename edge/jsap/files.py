"""Files of a profile, JSON or YAML, with their includes.

`include` (also `#include`) lists files, relative to the including one. The including file overrides, member by member;
of two included ones the later. An update, query or graphs member is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from edge.jsap.errors import Problem
from edge.jsap.findings import Findings
from edge.jsap.json_text import read_json
from edge.jsap.members import Members
from edge.jsap.names import shown
from edge.jsap.nodes import Node, NotReadable, Source, merged
from edge.jsap.yaml_text import read_yaml

LARGEST: Final = 8 * 1024 * 1024
"""Maximum bytes of a file."""

MOST: Final = 100
"""Maximum files that one profile includes, with repetitions."""

# Members whose entries are replaced as a whole, not merged.
_WHOLE: Final = ("updates", "queries")


def read(path: Path, findings: Findings) -> Node | None:
    """Return the document of a file with its includes, or None; then `findings` has the reason.

    Raises `OSError` for the file itself, which may be a pipe. An included one must be a readable regular file;
    otherwise it is a problem of the including file.
    """
    text = _text(path, findings)
    return None if text is None else parse(text, str(path), findings)


def parse(text: str, name: str, findings: Findings, *, includes: bool = True) -> Node | None:
    """Parse a text in the same way. `name` is its file name, against which includes are resolved.

    `includes`: whether it may include files.
    """
    return _Documents(findings, MOST if includes else 0).read(Source(name, text), ())


def _text(path: Path, findings: Findings) -> str | None:
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)  # a device does not report its size
    if len(content) > LARGEST:
        findings.problem(Problem(str(path), 0, 0, f"the file is larger than {LARGEST} bytes"))
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        findings.problem(Problem(str(path), line, column, "the file is not UTF-8 text"))
        return None


class _Documents:
    """Reader of the document of a profile and of its includes."""

    def __init__(self, findings: Findings, most: int) -> None:
        """`most`: files that may be included."""
        self._findings = findings
        self._most = self._left = most

    def read(self, source: Source, including: tuple[Path, ...]) -> Node | None:
        """Return a document with its includes. `including`: the chain of files that include it."""
        try:
            node = read_yaml(source, self._findings) if _is_yaml(source) else read_json(source, self._findings)
        except NotReadable as error:
            self._findings.problem(error.problem)
            return None
        if not isinstance(node.value, dict):
            self._findings.problem(node.problem("a profile must be an object"))
            return None
        include = Members(node, self._findings).node("include", "#include")
        if include is None:
            return node
        if not self._most:
            reason = "no files can be included here: copy their members into this profile"
            self._findings.problem(include.problem(reason))
            return node
        files = include.value if isinstance(include.value, list) else [include]
        below: Node | None = None
        for file in files:
            below = _joined(below, self._included(file, (*including, Path(source.name).resolve())))
        return _joined(below, node)

    def _included(self, file: Node, including: tuple[Path, ...]) -> Node | None:
        if not isinstance(file.value, str):
            self._findings.problem(file.problem("must be the name of a file"))
            return None
        try:
            path = _path(file.value, Path(file.source.name))
            # Resolved paths, so that a cycle through symbolic links is found, too.
            if path.resolve() in including:
                raise ValueError("it includes this file, so the includes form a loop")
            if path.exists() and not path.is_file():
                raise ValueError("it is not a regular file")
            # Repetitions count: nested files that each include two others would otherwise take exponential time.
            if not self._left:
                raise ValueError(f"a profile may include {MOST} files")
            self._left -= 1
            text = _text(path, self._findings)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._findings.problem(file.problem(f"{shown(file.value)} cannot be read: {reason}"))
            return None
        return None if text is None else self.read(Source(str(path), text), including)


def _is_yaml(source: Source) -> bool:
    """Return whether the extension is that of YAML; for others, JSON begins with a bracket."""
    ending = Path(source.name).suffix.lower()
    return ending in (".yaml", ".yml") or (ending != ".json" and source.text.lstrip()[:1] not in ("{", "["))


def _path(name: str, including: Path) -> Path:
    """Return the path of an included file. Raises `ValueError`."""
    parts = urlsplit(name)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise ValueError("only files can be included, nothing is fetched")
    return including.parent / (unquote(parts.path) if parts.scheme else name)


def _joined(below: Node | None, above: Node | None) -> Node | None:
    """Merge two profiles. Entries and `graphs` are replaced as a whole."""
    both = merged(below, above)
    if below is None or above is None or both is None:
        return both
    under, over = _members(below), _members(above)
    members = dict(_members(both))
    for name in _WHOLE:
        if name in under and name in over:
            members[name] = replace(over[name], value={**_members(under[name]), **_members(over[name])})
    if "graphs" in over:
        members["graphs"] = over["graphs"]
    return replace(both, value=members)


def _members(node: Node) -> Mapping[str, Node]:
    return node.value if isinstance(node.value, dict) else {}
