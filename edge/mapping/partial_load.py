"""The usable part of a mapping file with wrong types: its remaining keys are compiled, so that all faults are found.

A key whose value has a wrong type is dropped. Without it, other keys can seem to be wrong: a template cannot use the
captures of a dropped topic. Such follow-up faults are recognised by their text and by the keys that were dropped.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edge.mapping.errors import Fault, nearest
from edge.mapping.file_model import FileSpec, Listing17Entry
from edge.mapping.modbus_model import ModbusSpec, RegisterSpec, WriteSpec
from edge.mapping.model import (
    ActuatorSpec,
    CommandSpec,
    ConditionSpec,
    ConvertSpec,
    DecodeSpec,
    EventSpec,
    FieldSpec,
    MappingSpec,
    ReadingKeys,
    ReadingSpec,
    SetSpec,
    StoreSpec,
    TimeSpec,
)
from edge.mapping.serial_model import ChecksumSpec, FramingSpec, SerialSpec

LISTS: Final = ("mapping", "actuator", "serial", "modbus")
"""Tables that can occur several times in a file."""
MOST_FAULTS: Final = 100
"""Faults of a file that are reported. The time for each one grows with the file."""
_ROUNDS: Final = 16
_TABLES: Final[dict[str | int, type[BaseModel]]] = {
    "mapping": MappingSpec,
    "readings": ReadingSpec,
    "defaults": ReadingKeys,
    "time": TimeSpec,
    "store": StoreSpec,
    "event": EventSpec,
    "set": SetSpec,
    "when": ConditionSpec,
    "semantic-mappings": Listing17Entry,
    "actuator": ActuatorSpec,
    "removed": CommandSpec,
    "convert": ConvertSpec,
    "serial": SerialSpec,
    "framing": FramingSpec,
    "crc": ChecksumSpec,
    "fields": FieldSpec,
    "decode": DecodeSpec,
    "modbus": ModbusSpec,
    "registers": RegisterSpec,
    "write": WriteSpec,
}
_BRANCH: Final = re.compile(r"[\[\]]|^(str|int|bool|decimal|constrained-str|function-after)$|^tuple|literal|Spec$")
"""Names of union branches, which are not keys of the file."""
_IGNORED: Final = {"ignore": True}
"""Stands for a reading that is not a table, so that the others keep their numbers."""
STAND_IN: Final = "urn:dropped:"
"""Value of a prefix whose own one cannot be used."""
_STAND_INS: Final = {
    ("actuator", "query"): "SELECT * {{}}",
    ("set", "topic"): "dropped",
    ("serial", "name"): "dropped{}",
    ("serial", "device"): "/dev/null",
    ("modbus", "name"): "dropped{}",
    ("registers", "name"): "dropped{}",
    ("crc", "name"): "crc-32",
    ("fields", "name"): "dropped{}",
    ("fields", "type"): "u8",
    ("decode", "path"): "dropped",
    ("decode", "encoding"): "hex",
    ("time", "path"): "dropped",
}
"""Values for keys that a table needs, so that its other keys are still checked."""
_KIND: Final = frozenset(
    {"payload", "fields", "path", "record", "record_unit", "unit_from", "captures", "each", "decode", "readings"}
)
"""Keys on which the kind of a payload depends, if "payload" does not say it."""
_CAPTURES: Final = _KIND | {"topic", "topic_regex", "pattern", "ignore"}
_FOLLOW_UPS: Final[tuple[tuple[re.Pattern[str], frozenset[str]], ...]] = tuple(
    (re.compile(reason), frozenset(keys))
    for reason, keys in (
        ("nothing captures", _CAPTURES),
        ("needs an observation", {"observation", "readings", "ignore", "defaults"}),
        ("needs a topic", {"topic"}),
        ("Binary payloads have fields", {"payload", "fields"}),
        ("is for payloads of kind|payload has no |are named groups|has no paths", _KIND),
        ('of "each", which is missing', {"each"}),
        ('A condition says nothing|"exists" needs a path', {"when"}),
        ("The pattern has no group", _KIND | {"pattern", "time"}),
        ("say how a desired value becomes", {"set"}),
        ("The table says nothing", {"store", "event"}),
        ("^The prefix ", {"namespaces"}),
        ("is not a unit", {"units"}),
        ("^The value for ", {"datatype", "defaults"}),
        ("A message needs a payload|An actuator needs a topic", {"payload", "topic", "removed"}),
        ("does not select", {"query"}),
        ("has that name", {"name"}),
        ("has no registers", {"registers"}),
        ("either a host or a serial line", {"host", "device"}),
        ("field", {"fields", "decode"}),
        ("begin with certain bytes|have an end|without an escape|are one byte|stands behind sync", {"framing"}),
    )
)
"""Texts of faults, and the keys whose absence can cause them."""


@dataclass(slots=True)
class UsablePart:
    """A file without the keys whose values have a wrong type."""

    spec: FileSpec | None = None
    """None: nothing of it can be compiled."""
    numbers: dict[str, list[int]] = field(default_factory=dict)
    """By kind of table: the positions in the file of those that remain."""
    dropped: list[tuple[str | None, int, tuple[str | int, ...]]] = field(default_factory=list)
    """Kind of table, its position, and the path of each dropped key; outside of these tables None and 0."""
    further: list[ErrorDetails] = field(default_factory=list)
    """Faults of types that only the validation of the rest has found."""

    def number(self, table: str, index: int) -> int:
        """Return the position in the file of a table that remains."""
        return self.numbers[table][index] if table in self.numbers else index

    def caused(self, table: str, index: int, fault: Fault) -> bool:
        """Whether a fault exists only because of keys that were dropped. `index`: position of the table in the file."""
        if not self.dropped:
            return False
        names = set(self._names(table, index, fault.key or ""))
        return any(reason.search(fault.reason) and keys & names for reason, keys in _FOLLOW_UPS)

    def _names(self, table: str, index: int, key: str) -> list[str]:
        """Return the names of the dropped keys that can concern a key of a table."""
        reading = re.match(r"readings\[([0-9]+)\]", key)
        found: list[str] = []
        for kind, at, path in self.dropped:
            if kind is None:
                found += map(str, path[:2])
            elif (kind, at) != (table, index):
                continue
            elif path[0] == "readings" and len(path) > 2:
                # The kind of the payload is that of all readings together.
                if reading is None or int(reading[1]) == path[1] or path[2] in _KIND:
                    found.append(str(path[2]))
            else:
                found.append(str(path[0]))
        return found


def with_lists(data: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy of a file in which [mapping] is read as [[mapping]], and [mapping.readings] likewise."""
    rest: dict[str, Any] = copy.deepcopy(dict(data))
    for name in LISTS:
        if isinstance(rest.get(name), dict):
            rest[name] = [rest[name]]
    for mapping in rest["mapping"] if isinstance(rest.get("mapping"), list) else ():
        if isinstance(mapping, dict) and isinstance(mapping.get("readings"), dict):
            mapping["readings"] = [mapping["readings"]]
    return rest


def usable_part(data: Mapping[str, object], details: Sequence[ErrorDetails]) -> UsablePart:
    """Return the part of a file that can be compiled. `details`: the faults of its types."""
    part = UsablePart()
    rest = with_lists(data)
    for name in LISTS:
        if isinstance(rest.get(name), list):
            part.numbers[name] = [*range(len(rest[name]))]
    known = {tuple(detail["loc"]) for detail in details}
    for _ in range(_ROUNDS):
        try:
            part.spec = FileSpec.model_validate(rest)
        except ValidationError as error:
            found = error.errors()[:MOST_FAULTS]
        else:
            return part
        details = [_in_file(each, part.numbers) for each in found]
        part.further += [each for each in details if tuple(each["loc"]) not in known and not _is_lost(each, part)]
        known |= {tuple(each["loc"]) for each in details}
        if not _drop(rest, found, part):
            break
    return part


def _in_file(detail: ErrorDetails, numbers: Mapping[str, list[int]]) -> ErrorDetails:
    """Return a fault of the rest with its position in the file."""
    table, *steps = detail["loc"] or ("",)
    if not steps or not isinstance(steps[0], int) or str(table) not in numbers:
        return detail
    return {**detail, "loc": (table, numbers[str(table)][steps[0]], *steps[1:])}


def _is_lost(detail: ErrorDetails, part: UsablePart) -> bool:
    """Whether a fault says that a key is missing that was dropped."""
    place = place_of(detail)
    listed = len(place) > 1 and place[0] in LISTS and isinstance(place[1], int)
    key = (str(place[0]), place[1], tuple(place[2:])) if listed else (None, 0, tuple(place))
    return detail["type"] == "missing" and key in part.dropped


def place_of(detail: ErrorDetails) -> list[str | int]:
    """Return the keys and positions that lead to a fault."""
    steps = detail["loc"]
    # A key of the file itself is in no union, and neither is the name of an unknown key.
    certain = {0, len(steps) - 1} if detail["type"] == "extra_forbidden" else {0}
    return [
        step
        for number, step in enumerate(steps)
        if number in certain or isinstance(step, int) or not _BRANCH.search(step)
    ]


def known_keys(place: Sequence[str | int]) -> list[str]:
    """Return the keys of the table in which the last key is."""
    table = next((_TABLES[each] for each in reversed(place[:-1]) if each in _TABLES), FileSpec)
    return [field_.alias or name for name, field_ in table.model_fields.items()]


def _drop(rest: dict[str, Any], details: Sequence[ErrorDetails], part: UsablePart) -> bool:
    """Drop the keys of these faults. Returns False if none can be dropped."""
    places = [place_of(detail) for detail in details]
    changed = False
    gone: dict[str, set[int]] = {}
    for number, (detail, place) in enumerate(zip(details, places, strict=True)):
        if not place or place in places[:number]:  # two alternatives of one value
            continue
        # Of the alternatives of a value, the one that leads deeper is meant.
        if any(len(other) > len(place) and other[: len(place)] == place for other in places):
            continue
        if detail["type"] == "extra_forbidden" and _renamed(rest, place, part):
            changed = True
            continue
        missing = detail["type"] == "missing"
        stand_in = _stand_in(place, len(part.dropped))
        found = place if missing and stand_in is not None else _droppable(rest, place[:-1] if missing else place)
        if found is None:
            continue
        changed = True
        if len(found) == 2 and found[0] == "namespaces":
            rest["namespaces"][found[1]] = STAND_IN
            continue
        _note(part, found)
        table, last = _at(rest, found[:-1]), found[-1]
        if len(found) == 2 and found[0] in LISTS:
            gone.setdefault(str(found[0]), set()).add(int(last))
        elif isinstance(last, int):
            table[last] = dict(_IGNORED)
        elif found == place and stand_in is not None:
            table[last] = stand_in
        else:
            table.pop(last)
    for name, indices in gone.items():
        kept = [index for index in range(len(rest[name])) if index not in indices]
        part.numbers[name] = [part.numbers[name][index] for index in kept]
        rest[name] = [rest[name][index] for index in kept]
    return changed


def _stand_in(place: Sequence[str | int], number: int) -> str | None:
    """Return a value for a key that its table needs. `number`: makes names unique."""
    container = next((step for step in reversed(place[:-1]) if step in _TABLES), None)
    text = _STAND_INS.get((str(container), str(place[-1]))) if place else None
    return None if text is None else text.format(number)


def _note(part: UsablePart, place: Sequence[str | int]) -> None:
    if len(place) > 1 and place[0] in LISTS:
        table = str(place[0])
        part.dropped.append((table, part.numbers[table][int(place[1])], tuple(place[2:]) or ("",)))
    else:
        part.dropped.append((None, 0, tuple(place)))


def _renamed(rest: dict[str, Any], place: Sequence[str | int], part: UsablePart) -> bool:
    """Replace a misspelt key by the one that is meant, so that others do not seem to be missing; else remove it."""
    table = _at(rest, place[:-1])
    if not isinstance(table, dict) or place[-1] not in table:
        return False
    value = table.pop(place[-1])
    meant = nearest(str(place[-1]), known_keys(place))
    if meant is not None and meant not in table and not (meant in LISTS and isinstance(value, dict)):
        table[meant] = value
        if table is rest and isinstance(value, list):
            part.numbers[meant] = [*range(len(value))]
    return True


def _droppable(rest: dict[str, Any], place: Sequence[str | int]) -> list[str | int] | None:
    """Return the place of the smallest part with a fault that can be dropped; None if it is not in the file."""
    steps = [*place]
    while steps:
        table, last = _at(rest, steps[:-1]), steps[-1]
        if isinstance(table, dict) and last in table:
            return steps
        in_list = isinstance(table, list) and isinstance(last, int) and last < len(table)
        if in_list and (steps[-2] == "readings" or (len(steps) == 2 and steps[0] in LISTS)):
            return None if table[int(last)] == _IGNORED else steps
        steps.pop()
    return None


def _at(data: object, place: Sequence[str | int]) -> Any:  # noqa: ANN401 - a part of TOML data
    """Return a part of a file; None if there is none, because keys have names that are taken for branches."""
    part: Any = data
    for step in place:
        try:
            part = part[step]
        except (KeyError, IndexError, TypeError):
            return None
    return part
