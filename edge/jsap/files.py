"""The files of a profile: JSON or YAML, and what they include.

`include` (also `#include`) lists files, relative to the one that includes them. The one that includes wins, member by
member; of two included ones the later. An update, query or graphs member is taken whole.
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
"""Bytes of a file."""

_WHOLE: Final = ("updates", "queries")


def read(path: Path, findings: Findings) -> Node | None:
    """The document of a file and what it includes. None: it cannot be read, and `findings` has why.

    Raises `OSError` for the file itself; for one that is included that is a problem of who includes it.
    """
    text = _text(path, findings)
    return None if text is None else parse(text, str(path), findings)


def parse(text: str, name: str, findings: Findings) -> Node | None:
    """The same for a text. `name`: what it is called, and beside what included files are looked for."""
    return _document(Source(name, text), findings, ())


def _text(path: Path, findings: Findings) -> str | None:
    if path.stat().st_size > LARGEST:
        findings.problem(Problem(str(path), 0, 0, f"the file is larger than {LARGEST} bytes"))
        return None
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        findings.problem(Problem(str(path), line, column, "the file is not UTF-8 text"))
        return None


def _document(source: Source, findings: Findings, including: tuple[Path, ...]) -> Node | None:
    try:
        node = read_yaml(source, findings) if _is_yaml(source) else read_json(source, findings)
    except NotReadable as error:
        findings.problem(error.problem)
        return None
    if not isinstance(node.value, dict):
        findings.problem(node.problem("a profile must be an object"))
        return None
    include = Members(node, findings).node("include", "#include")
    if include is None:
        return node
    files = include.value if isinstance(include.value, list) else [include]
    below: Node | None = None
    for file in files:
        below = _joined(below, _included(file, findings, (*including, Path(source.name).resolve())))
    return _joined(below, node)


def _is_yaml(source: Source) -> bool:
    """By the ending; where that says nothing, JSON begins with a bracket."""
    ending = Path(source.name).suffix.lower()
    return ending in (".yaml", ".yml") or (ending != ".json" and source.text.lstrip()[:1] not in ("{", "["))


def _included(file: Node, findings: Findings, including: tuple[Path, ...]) -> Node | None:
    if not isinstance(file.value, str):
        findings.problem(file.problem("must be the name of a file"))
        return None
    parts = urlsplit(file.value)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        findings.problem(file.problem(f"{shown(file.value)}: only files can be included, nothing is fetched"))
        return None
    path = Path(file.source.name).parent / (unquote(parts.path) if parts.scheme else file.value)
    try:
        if path.resolve() in including:
            findings.problem(file.problem(f"{shown(file.value)} includes this file: they would go round for ever"))
            return None
        text = _text(path, findings)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        findings.problem(file.problem(f"{shown(file.value)} cannot be read: {reason}"))
        return None
    return None if text is None else _document(Source(str(path), text), findings, including)


def _joined(below: Node | None, above: Node | None) -> Node | None:
    """Two profiles as one. An entry and `graphs` are one thing, of which no half is taken."""
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
