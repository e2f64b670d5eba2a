"""Loader of mapping files: TOML of the mapping language, or JSON as in the paper's Listing 17. Faults have lines."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from importlib import resources
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from edge.mapping.actuators import Actuator, ActuatorCompiler
from edge.mapping.compiling import MappingCompiler
from edge.mapping.errors import BadKeyError, Fault, FaultCode, FaultsOfTable, MappingError, line_of, nearest
from edge.mapping.fault_reasons import because, of_type
from edge.mapping.file_model import FileSpec, Listing17Entry
from edge.mapping.file_units import FileUnits
from edge.mapping.modbus_devices import ModbusDevice
from edge.mapping.modbus_tables import ModbusCompiler
from edge.mapping.partial_load import (
    LISTS,
    MOST_FAULTS,
    STAND_IN,
    UsablePart,
    known_keys,
    place_of,
    usable_part,
    with_lists,
)
from edge.mapping.rule_warnings import repeated_observations
from edge.mapping.rules import CompiledMapping
from edge.mapping.serial_model import SerialSpec
from edge.mapping.serial_ports import SerialPort, serial_port
from edge.mapping.settings import MappingLimits
from edge.mapping.terms import namespace_table
from edge.mapping.unused_keys import idle_defaults

_log = logging.getLogger(__name__)

_LARGEST_FILE: Final = 8 * 1024 * 1024
_LINE = re.compile(r"\(at line ([0-9]+)")
_WITHIN: Final = re.compile(r"(.+)(?:\.[^.\[\]]+|\[[0-9]+\])")
"""A key within a table or list, and the key of that."""
_REPEATED: Final = {
    "mapping": "A file can have several of these tables: write [[mapping]].",
    "actuator": "A file can have several of these tables: write [[actuator]].",
    "serial": "A file can have several of these tables: write [[serial]].",
    "modbus": "A file can have several of these tables: write [[modbus]].",
    "registers": "A device can have several of these tables: write [[modbus.registers]].",
    "readings": "A mapping can have several of these tables: write [[mapping.readings]].",
}
"""Faults of tables that are written with single brackets."""
_MORE: Final = f"Only the first {MOST_FAULTS} faults are reported."
_READINGS: Final = "A reading belongs to a mapping: write [[mapping.readings]] after its [[mapping]]."


@dataclass(frozen=True, slots=True)
class MappingPack:
    """Compiled mappings of one file."""

    name: str
    mappings: tuple[CompiledMapping, ...]
    own: bool = True
    """Whether it is the operator's; these files take precedence over packs of the gateway."""
    description: str | None = None
    file: str | None = None
    actuators: tuple[Actuator, ...] = ()
    ports: tuple[SerialPort, ...] = ()
    devices: tuple[ModbusDevice, ...] = ()
    """Modbus devices."""
    warnings: tuple[Fault, ...] = ()
    """Probable mistakes, in spite of which the file can be used."""


def load_pack(
    source: Path | str,
    name: str | None = None,
    *,
    own: bool = True,
    limits: MappingLimits | None = None,
    strict: bool = True,
) -> MappingPack:
    """Load a file (a `Path`) or a text (a `str`): TOML, or JSON if it begins with a brace.

    `name`: name of the pack in messages, by default the file name without suffix. `strict`: a unit that QUDT does not
    have is an error; otherwise it is a warning, so that a gateway goes on with a file that it had before the check.
    Raises `MappingError` with all faults, `OSError` if the file cannot be read.
    """
    file = None
    if isinstance(source, Path):
        file, name = str(source), name or source.stem
        if source.stat().st_size > _LARGEST_FILE:
            raise MappingError([Fault(f"The file is larger than {_LARGEST_FILE} bytes.", file=file)])
        try:
            # Editors of Windows begin a file with a byte order mark.
            text = source.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise MappingError([Fault(f"The file is not UTF-8 text (byte {error.start}).", file=file)]) from None
    else:
        text = source
    loader = _Loader(text, name or "mappings", file, own=own, limits=limits or MappingLimits(), strict=strict)
    try:
        return loader.load()
    except MappingError:
        raise
    except Exception as error:
        # A defect of the checks must not stop a program that reads the files of an author.
        _log.exception("mappings.check_failed", extra={"file": file or loader.name})
        reason = f"The file cannot be checked: {type(error).__name__}: {error}."
        raise MappingError([Fault(reason, file=file or loader.name)]) from error


def builtin_names() -> tuple[str, ...]:
    """Return the names of the packs of the gateway."""
    folder = resources.files("edge") / "device_mappings"
    return tuple(sorted(each.name[:-5] for each in folder.iterdir() if each.name.endswith(".toml")))


def load_builtin(name: str, *, limits: MappingLimits | None = None) -> MappingPack:
    """Return a pack of the gateway. Raises `MappingError` for an unknown name."""
    known = builtin_names()
    if name not in known:
        reason = f'Mapping pack "{name}" does not exist.'
        raise MappingError([Fault(reason, nearest=nearest(name, known), allowed=", ".join(known))])
    text = (resources.files("edge") / "device_mappings" / f"{name}.toml").read_text("utf-8")
    return replace(load_pack(text, name, own=False, limits=limits), file=f"edge/device_mappings/{name}.toml")


class _Loader:
    def __init__(
        self, text: str, name: str, file: str | None, *, own: bool, limits: MappingLimits, strict: bool
    ) -> None:
        self.text = text
        self.name = name
        self.file = file
        self.own = own
        self.limits = limits
        self.strict = strict
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []
        self.more = False
        """Whether the file has more faults than are reported."""
        self.part = UsablePart()
        """The part of the file that is compiled, if it has wrong types."""

    def load(self) -> MappingPack:
        spec = self._listing17() if self.text.lstrip().startswith("{") else self._toml()
        mappings, actuators, devices = self._compile(spec) if spec is not None else ([], [], [])
        ports = self._ports(spec.serial) if spec is not None else []
        for found in (self.faults, self.warnings):
            found.sort(key=lambda each: each.line or 0)
            if self.more and len(found) >= MOST_FAULTS:
                found[MOST_FAULTS:] = [Fault(_MORE, file=self.file or self.name)]
        if self.faults:
            raise MappingError(self.faults)
        description = spec.description if spec is not None else None
        return MappingPack(
            self.name,
            tuple(mappings),
            self.own,
            description,
            self.file,
            tuple(actuators),
            tuple(ports),
            tuple(devices),
            tuple(self.warnings),
        )

    def _toml(self) -> FileSpec | None:
        try:
            # Decimals, because scales and bounds apply exactly: the float 0.1 is not a tenth.
            data = tomllib.loads(self.text, parse_float=_decimal)
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            line = _LINE.search(str(error))
            self._fault(f"{error}.", line=int(line[1]) if line else None, code="not_toml")
            return None
        return self._validate(data)

    def _validate(self, data: Mapping[str, object]) -> FileSpec | None:
        try:
            return FileSpec.model_validate(data)
        except ValidationError as error:
            details = error.errors()[:MOST_FAULTS]
            self.more = error.error_count() > len(details)
            self.part = usable_part(data, details)
            shown = with_lists(data)
            for detail in (*details, *self.part.further):
                self._translate(detail, shown)
            # A table or text gives faults for both alternatives; the fault within the table is the useful one.
            deeper = {
                (each.mapping, within[1]) for each in self.faults if (within := _WITHIN.fullmatch(each.key or ""))
            }
            self.faults = [each for each in self.faults if (each.mapping, each.key) not in deeper]
            return self.part.spec

    def _translate(self, detail: ErrorDetails, data: Mapping[str, object]) -> None:
        if self._is_full(self.faults):
            return
        place = place_of(detail)
        listed = str(place[0]) if len(place) > 1 and place[0] in LISTS and isinstance(place[1], int) else None
        mapping, line = self._where(place, data)
        steps = place[2:] if listed is not None and len(place) > 2 else place
        key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
        if detail["type"] == "extra_forbidden" and place[0] in ("reading", "readings"):
            fault = Fault(_READINGS)
        elif detail["type"] == "list_type" and place[-1] in _REPEATED and isinstance(detail["input"], dict):
            fault = Fault(_REPEATED[str(place[-1])])
        elif detail["type"] == "extra_forbidden":
            known = known_keys(place)
            fault = Fault(
                "Unknown key.",
                nearest=nearest(str(place[-1]), known),
                allowed=", ".join(known),
                code="unknown_key",
            )
        else:
            message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
            is_scalar = "values" in place[:-1] or "equals" in place or "one_of" in place
            if is_scalar:
                message = "must be true, false, a number or a text"
            message = re.sub("a valid dictionary(?: or instance of [A-Za-z]+)?", "a table", message)
            code: FaultCode = "missing_key" if detail["type"] == "missing" else "wrong_value"
            text = message[:1].upper() + message[1:] + "."
            word = "scalar" if is_scalar else detail["type"]
            fault = Fault(of_type(text, word, detail.get("ctx", {})), code=code)
        where = self._place(listed or "mapping", mapping, line)
        fault = replace(fault, key=key or None, file=where.file, line=line, mapping=mapping, table=where.table)
        if not any(each.key == fault.key and each.mapping == mapping for each in self.faults):
            self.faults.append(fault)

    def _where(self, place: list[str | int], data: Mapping[str, object]) -> tuple[str | None, int | None]:
        if len(place) > 1 and place[0] in LISTS and isinstance(place[1], int):
            table, index = str(place[0]), place[1]
            entries = data.get(table)
            entry = entries[index] if isinstance(entries, list) else None
            name = (entry.get("name") or entry.get("topic")) if isinstance(entry, dict) else None
            return str(name or f"number {index + 1}"), self._line([str(step) for step in place[2:]], table, index)
        return None, self._line([str(step) for step in place])

    def _place(self, table: str, name: str | None, line: int | None) -> Fault:
        """Return a fault at this position, without a reason yet."""
        return Fault("", file=self.file or self.name, line=line, mapping=name, table=table)

    def _line(self, keys: list[str], table: str = "mapping", index: int | None = None) -> int | None:
        return line_of(self.text, keys, table, index, LISTS)

    def _line_within(self, line: int | None, within: int | None) -> int | None:
        """Return the line in the file for line `within` of the key's text; the key is at `line`."""
        if line is None or within is None:
            return line
        # The line break after the opening quotes does not belong to the text (TOML 1.0, multi-line strings).
        opens = re.search("(\"\"\"|''')\\s*$", self.text.splitlines()[line - 1]) is not None
        return line + within - (0 if opens else 1)

    def _compile(self, spec: FileSpec) -> tuple[list[CompiledMapping], list[Actuator], list[ModbusDevice]]:
        faults = FaultsOfTable()
        namespaces = namespace_table(spec.namespaces, faults)
        self._report(faults)
        # Otherwise each use of the prefix would be a fault, too.
        namespaces.update({prefix: STAND_IN for prefix in spec.namespaces if prefix not in namespaces})
        faults = FaultsOfTable()
        units = FileUnits(spec.units, namespaces, strict=self.strict, faults=faults)
        compiler = MappingCompiler(self.name, namespaces, units, spec.defaults, own=self.own, limits=self.limits)
        self._report(faults)
        mappings = []
        observations: dict[object, CompiledMapping] = {}
        for index, mapping in enumerate(spec.mapping):
            faults = FaultsOfTable()
            compiled = compiler.compile(mapping, faults)
            if compiled is not None:
                mappings.append(compiled)
                faults.found += repeated_observations(compiled, observations)
            for error in faults.found:
                self._refuse(error, "mapping", self.part.number("mapping", index), mapping.name or mapping.topic)
        modbus = ModbusCompiler(compiler, spec.defaults)
        for index, device in enumerate(spec.modbus):
            number, faults = self.part.number("modbus", index), FaultsOfTable()
            modbus.compile(device, self._place("modbus", device.name, self._line(["name"], "modbus", number)), faults)
            for error in faults.found:
                self._refuse(error, "modbus", number, device.name)
        mappings += modbus.mappings
        for key, reason in idle_defaults(spec.defaults, compiler.used) if mappings else ():
            warning = BadKeyError(reason, key=key)
            warning.warning = warning.of_defaults = True
            self._refuse(warning, "mapping", 0, None)
        actuators = []
        actuator_compiler = ActuatorCompiler(self.name, namespaces, self.limits)
        for index, actuator in enumerate(spec.actuator):
            name, number = actuator.name or actuator.topic, self.part.number("actuator", index)
            place = self._place("actuator", name, self._line(["query"], "actuator", number))
            faults = FaultsOfTable()
            found = actuator_compiler.compile(actuator, place, faults)
            if found is not None:
                actuators.append(found)
            for error in faults.found:
                self._refuse(error, "actuator", number, name)
        return mappings, actuators, modbus.devices

    def _ports(self, specs: list[SerialSpec]) -> list[SerialPort]:
        ports: list[SerialPort] = []
        for index, spec in enumerate(specs):
            number = self.part.number("serial", index)
            faults = FaultsOfTable()
            if spec.name in [port.name for port in ports]:
                faults.add(BadKeyError(because("port_taken"), key="name"))
            place = self._place("serial", spec.name, self._line(["name"], "serial", number))
            port = serial_port(spec, place, faults)
            if port is not None:
                ports.append(port)
            for error in faults.found:
                self._refuse(error, "serial", number, spec.name)
        return ports

    def _report(self, faults: FaultsOfTable) -> None:
        """Add faults outside of the tables of mappings, actuators and ports."""
        for error in faults.found:
            if self.part.caused("", 0, error.fault):
                continue
            keys = [part.strip('"') for part in (error.fault.key or "").split(".", 1)]
            self._add(replace(error.fault, file=self.file or self.name, line=self._line(keys)), error)

    def _refuse(self, error: BadKeyError, table: str, index: int, name: str | None) -> None:
        if self.part.caused(table, index, error.fault) or self._is_full(
            self.warnings if error.warning else self.faults
        ):
            return
        if error.of_defaults:
            key = f"defaults.{error.fault.key}"
            line = self._line([part.strip('"') for part in key.split(".", 2)])
            fault = replace(error.fault, key=key, file=self.file or self.name, line=line)
            known = {(each.key, each.reason) for each in (*self.faults, *self.warnings)}
            if (key, fault.reason) not in known:  # each mapping has it
                self._add(fault, error)
            return
        keys = re.findall(r"[^.\[\]]+", error.fault.key or "")
        line = self._line_within(self._line(keys, table, index), error.fault.line)
        label = name or f"number {index + 1}"
        fault = replace(error.fault, file=self.file or self.name, mapping=label, line=line, table=table)
        self._add(fault, error)

    def _add(self, fault: Fault, error: BadKeyError) -> None:
        (self.warnings if error.warning else self.faults).append(fault)

    def _is_full(self, found: list[Fault]) -> bool:
        """Whether no more faults are reported; called when there is one more."""
        full = len(found) >= MOST_FAULTS
        self.more |= full
        return full

    def _listing17(self) -> FileSpec | None:
        try:
            data = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            self._fault(f"Not JSON: {error}.", line=getattr(error, "lineno", None))
            return None
        extended = data.get("extended")
        table = data.get("semantic-mappings", extended.get("semantic-mappings") if isinstance(extended, dict) else None)
        if not isinstance(table, dict):
            self._fault('The object "semantic-mappings" is missing.', key="semantic-mappings")
            return None
        mappings = []
        for topic, entry in table.items():
            try:
                keys = Listing17Entry.model_validate(entry).model_dump(exclude_none=True)
            except ValidationError as error:
                for detail in error.errors():
                    self._translate(replace_place(detail, topic), data)
                # The other keys can have faults, too.
                given = entry if isinstance(entry, dict) else {}
                keys = {key: given[key] for key in Listing17Entry.model_fields if isinstance(given.get(key), str)}
                keys.setdefault("observation", STAND_IN)
            # Listing 17 has no captures: braces are literal.
            quoted = {key: str(value).replace("{", "{{").replace("}", "}}") for key, value in keys.items()}
            mappings.append({"topic": topic.replace("{", "{{").replace("}", "}}"), "name": topic, **quoted})
        namespaces = data.get("namespaces", {})
        return self._validate({"namespaces": namespaces, "mapping": mappings})

    def _fault(
        self, reason: str, *, line: int | None = None, key: str | None = None, code: FaultCode = "not_usable"
    ) -> None:
        self.faults.append(Fault(reason, file=self.file or self.name, line=line, key=key, code=code))


def replace_place(detail: ErrorDetails, topic: str) -> ErrorDetails:
    """Place `detail` under the entry of `topic` in `semantic-mappings`."""
    return {**detail, "loc": ("semantic-mappings", topic, *detail["loc"])}


def _decimal(text: str) -> Decimal:
    try:
        # TOML allows underscores between digits.
        return Decimal(text.replace("_", ""))
    except InvalidOperation:
        return Decimal("NaN")
