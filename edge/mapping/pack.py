"""Mapping files loaded: TOML of the mapping language, or JSON as in the paper's Listing 17; faults with their lines."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from importlib import resources
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edge.mapping.compiling import MappingCompiler
from edge.mapping.errors import BadKeyError, Fault, MappingError, nearest
from edge.mapping.model import (
    ConditionSpec,
    FileSpec,
    Listing17Entry,
    MappingSpec,
    ReadingKeys,
    ReadingSpec,
    TimeSpec,
)
from edge.mapping.rules import CompiledMapping
from edge.mapping.settings import MappingLimits
from edge.mapping.terms import namespace_table

_LARGEST_FILE: Final = 8 * 1024 * 1024
_LINE = re.compile(r"\(at line ([0-9]+)")
_TABLES: Final[dict[str | int, type[BaseModel]]] = {
    "mapping": MappingSpec,
    "readings": ReadingSpec,
    "defaults": ReadingKeys,
    "time": TimeSpec,
    "when": ConditionSpec,
    "semantic-mappings": Listing17Entry,
}


@dataclass(frozen=True, slots=True)
class MappingPack:
    """The compiled mappings of one file."""

    name: str
    mappings: tuple[CompiledMapping, ...]
    own: bool = True
    """Whether it is the operator's; own files go before the packs that come with the gateway."""
    description: str | None = None
    file: str | None = None


def load_pack(
    source: Path | str, name: str | None = None, *, own: bool = True, limits: MappingLimits | None = None
) -> MappingPack:
    """The pack of a file (a `Path`) or a text (a `str`): TOML, or JSON where it begins with a brace.

    `name` is how messages call it; default: the file's name without its ending. Raises `MappingError` with every fault
    found, `OSError` where the file cannot be read.
    """
    file = None
    if isinstance(source, Path):
        file, name = str(source), name or source.stem
        if source.stat().st_size > _LARGEST_FILE:
            raise MappingError([Fault(f"The file is larger than {_LARGEST_FILE} bytes.", file=file)])
        try:
            text = source.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise MappingError([Fault(f"The file is not UTF-8 text (byte {error.start}).", file=file)]) from None
    else:
        text = source
    loader = _Loader(text, name or "mappings", file, own=own, limits=limits or MappingLimits())
    return loader.load()


def builtin_names() -> tuple[str, ...]:
    """Names of the packs that come with the gateway."""
    folder = resources.files("edge") / "mappings"
    return tuple(sorted(each.name[:-5] for each in folder.iterdir() if each.name.endswith(".toml")))


def load_builtin(name: str, *, limits: MappingLimits | None = None) -> MappingPack:
    """A pack that comes with the gateway. Raises `MappingError` for an unknown name."""
    known = builtin_names()
    if name not in known:
        reason = f'There is no mapping pack "{name}".'
        raise MappingError([Fault(reason, nearest=nearest(name, known), allowed=", ".join(known))])
    text = (resources.files("edge") / "mappings" / f"{name}.toml").read_text("utf-8")
    return replace(load_pack(text, name, own=False, limits=limits), file=f"edge/mappings/{name}.toml")


class _Loader:
    def __init__(self, text: str, name: str, file: str | None, *, own: bool, limits: MappingLimits) -> None:
        self.text = text
        self.name = name
        self.file = file
        self.own = own
        self.limits = limits
        self.faults: list[Fault] = []

    def load(self) -> MappingPack:
        spec = self._listing17() if self.text.lstrip().startswith("{") else self._toml()
        mappings = self._compile(spec) if spec is not None else []
        if self.faults:
            raise MappingError(self.faults)
        description = spec.description if spec is not None else None
        return MappingPack(self.name, tuple(mappings), self.own, description, self.file)

    def _toml(self) -> FileSpec | None:
        try:
            data = tomllib.loads(self.text, parse_float=_decimal)
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            line = _LINE.search(str(error))
            self._fault(f"Not TOML: {error}.", line=int(line[1]) if line else None)
            return None
        return self._validate(data)

    def _validate(self, data: Mapping[str, object]) -> FileSpec | None:
        try:
            return FileSpec.model_validate(data)
        except ValidationError as error:
            for detail in error.errors():
                self._translate(detail, data)
            # A table that may also be a text is faulted as both; the fault within it is the one to tell.
            deeper = {(each.mapping, (each.key or "").rpartition(".")[0]) for each in self.faults}
            self.faults = [each for each in self.faults if (each.mapping, each.key) not in deeper]
            return None

    def _translate(self, detail: ErrorDetails, data: Mapping[str, object]) -> None:
        # The names of union branches are no keys of the file.
        place = [
            part for part in detail["loc"] if isinstance(part, int) or not re.search(r"[\[\]]|^(str|bool)$|Spec$", part)
        ]
        place = [part for part in place if part not in ("decimal", "constrained-str", "function-after")]
        mapping, line = self._where(place, data)
        steps = place[2:] if place[:1] == ["mapping"] and len(place) > 2 else place
        key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
        if detail["type"] == "extra_forbidden":
            table = next((_TABLES[each] for each in reversed(place[:-1]) if each in _TABLES), FileSpec)
            known = list(table.model_fields)
            word = str(place[-1])
            fault = Fault("Unknown key.", nearest=nearest(word, known), allowed=", ".join(known))
        else:
            message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
            if "values" in place or "equals" in place or "one_of" in place:
                message = "must be true, false, a number or a text"
            fault = Fault(message[:1].upper() + message[1:] + ".")
        fault = replace(fault, file=self.file or self.name, line=line, mapping=mapping, key=key or None)
        if not any(each.key == fault.key and each.mapping == mapping for each in self.faults):
            self.faults.append(fault)

    def _where(self, place: list[str | int], data: Mapping[str, object]) -> tuple[str | None, int | None]:
        if len(place) > 1 and place[0] == "mapping" and isinstance(place[1], int):
            index = place[1]
            entries = data.get("mapping")
            entry = entries[index] if isinstance(entries, list) else None
            name = (entry.get("name") or entry.get("topic")) if isinstance(entry, dict) else None
            return str(name or f"number {index + 1}"), self._line(index, [str(step) for step in place[2:]])
        return None, self._line(None, [str(step) for step in place])

    def _line(self, index: int | None, keys: list[str]) -> int | None:
        """The line of a key of the mapping with this number, else that of the mapping's header. A search, no parse."""
        lines = self.text.splitlines()
        headers = [number for number, line in enumerate(lines) if line.strip().replace(" ", "") == "[[mapping]]"]
        start, end, found = 0, len(lines), None
        if index is not None:
            if index >= len(headers):
                return None
            start = found = headers[index]
            end = headers[index + 1] if index + 1 < len(headers) else len(lines)
        for key in keys:
            if key.isdigit():
                readings = [n for n in range(start, end) if lines[n].strip().replace(" ", "") == "[[mapping.readings]]"]
                if int(key) < len(readings):
                    start = found = readings[int(key)]
                continue
            pattern = re.compile(rf"""(^|[\s{{,\[."'])["']?{re.escape(key)}["']?\s*(=|\]|\.)""")
            hit = next((number for number in range(start, end) if pattern.search(lines[number])), None)
            if hit is not None:
                start = found = hit
        return None if found is None else found + 1

    def _compile(self, spec: FileSpec) -> list[CompiledMapping]:
        compiled = []
        try:
            namespaces = namespace_table(spec.namespaces)
            compiler = MappingCompiler(
                self.name, namespaces, spec.units, spec.defaults, own=self.own, limits=self.limits
            )
        except BadKeyError as error:
            key = error.fault.key or ""
            line = self._line(None, [part.strip('"') for part in key.split(".", 1)])
            self.faults.append(replace(error.fault, file=self.file or self.name, line=line))
            return []
        for index, mapping in enumerate(spec.mapping):
            try:
                compiled.append(compiler.compile(mapping))
            except BadKeyError as error:
                keys = re.findall(r"[^.\[\]]+", error.fault.key or "")
                label = mapping.name or mapping.topic or f"number {index + 1}"
                line = self._line(index, keys)
                self.faults.append(replace(error.fault, file=self.file or self.name, mapping=label, line=line))
        return compiled

    def _listing17(self) -> FileSpec | None:
        try:
            data = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            self._fault(f"Not JSON: {error}.", line=getattr(error, "lineno", None))
            return None
        extended = data.get("extended")
        table = data.get("semantic-mappings", extended.get("semantic-mappings") if isinstance(extended, dict) else None)
        if not isinstance(table, dict):
            self._fault('There is no object "semantic-mappings".', key="semantic-mappings")
            return None
        mappings = []
        for topic, entry in table.items():
            try:
                keys = Listing17Entry.model_validate(entry).model_dump(exclude_none=True)
            except ValidationError as error:
                for detail in error.errors():
                    self._translate(replace_place(detail, topic), data)
                continue
            # Listing 17 knows no captures: braces stand for themselves.
            quoted = {key: str(value).replace("{", "{{").replace("}", "}}") for key, value in keys.items()}
            mappings.append({"topic": topic.replace("{", "{{").replace("}", "}}"), "name": topic, **quoted})
        namespaces = data.get("namespaces", {})
        return self._validate({"namespaces": namespaces, "mapping": mappings})

    def _fault(self, reason: str, *, line: int | None = None, key: str | None = None) -> None:
        self.faults.append(Fault(reason, file=self.file or self.name, line=line, key=key))


def replace_place(detail: ErrorDetails, topic: str) -> ErrorDetails:
    """`detail` placed under the entry of `topic` in `semantic-mappings`."""
    return {**detail, "loc": ("semantic-mappings", topic, *detail["loc"])}


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text.replace("_", ""))
    except InvalidOperation:
        return Decimal("NaN")
