"""Births of edge nodes and devices as mappings: the metrics that they define become observations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from pydantic import ValidationError

from edge.discovery.announcement import BadAnnouncement, clean, encoded, is_plain
from edge.discovery.device_classes import PROPERTIES, unit_of
from edge.discovery.mappings import literal, property_name
from edge.mapping.compiling import MappingCompiler
from edge.mapping.errors import FaultsOfTable, listed_fault
from edge.mapping.fault_reasons import because, placed, reason_of
from edge.mapping.file_units import FileUnits
from edge.mapping.model import MappingSpec, ReadingKeys
from edge.mapping.pack import MappingPack
from edge.mapping.rules import CompiledMapping
from edge.mapping.settings import MappingLimits
from edge.mapping.terms import NAMESPACES
from edge.sparkplug.datatypes import DATATYPES, BadMetric, datatype_of
from edge.sparkplug.edge_node import BDSEQ
from edge.sparkplug.payload import Metric

NAMESPACE: Final = "spBv1.0"
"""First level of all topics (Sparkplug 3.0, section 4.1.1)."""
IRIS: Final = "urn:sepa-edge:sparkplug:"
"""Beginning of the IRIs of edge nodes, devices and metrics."""
_AVAILABLE: Final = "urn:sepa-edge:sparkplug-available:"
_PLACES: Final = "urn:sepa-edge:place:"
_CONTROLS: Final = ("Node Control/", "Device Control/")
_USUAL: Final = 16
"""Metrics of the protocol in one birth that do not count towards the limit."""
_SETTABLE: Final = frozenset({*range(1, 13), 14, 15})
_MOST_FAULTS: Final = 3
"""Faults of a birth that are listed."""
_READING: Final = re.compile(r"readings\[([0-9]+)\]").match
"""Beginning of the key of a fault in a reading."""

Keys = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """An edge node, or one of its devices."""

    group: str
    node: str
    device: str = ""
    """Empty: the node itself."""

    @property
    def path(self) -> str:
        """Name for people, and for `sparkplug.writable`."""
        return "/".join(filter(None, (self.group, self.node, self.device)))

    @property
    def iri(self) -> str:
        """IRI as a sensor."""
        return IRIS + self._encoded

    @property
    def data_topic(self) -> str:
        """Topic of its values."""
        return self._topic("DDATA" if self.device else "NDATA")

    @property
    def command_topic(self) -> str:
        """Topic of its commands."""
        return self._topic("DCMD" if self.device else "NCMD")

    @property
    def available(self) -> str:
        """IRI of the observation that tells whether it is available."""
        return _AVAILABLE + self._encoded

    @property
    def _encoded(self) -> str:
        return "/".join(quote(each, safe=":") for each in self.path.split("/"))

    def _topic(self, kind: str) -> str:
        levels = (NAMESPACE, self.group, kind, self.node, self.device)
        return "/".join(filter(None, levels))

    def command(self, metric: str) -> str:
        """Return the topic of the commands that set a metric, for the gateway itself: one more level."""
        return f"{self.command_topic}/{quote(metric, safe='')}"

    def observation(self, metric: str) -> str:
        """Return the IRI of a metric. Raises `BadMetric`."""
        levels = metric.split("/")
        try:
            # Metrics of a node are one level, so that none has the IRI of a metric of a device.
            if not self.device or any(level in ("", ".", "..") for level in levels):
                return f"{self.iri}/{encoded(metric)}"
            return f"{self.iri}/{'/'.join(map(encoded, levels))}"
        except BadAnnouncement as error:
            raise BadMetric(reason_of(error)) from None


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as its birth defines it."""

    name: str
    datatype: int
    unit: str = ""
    """As the node writes it; empty: none."""
    read_only: bool = False


class Given(NamedTuple):
    """Content of a birth, as far as it matters."""

    metrics: dict[str, Definition]
    """Metrics with a datatype that is read, by name."""
    skipped: frozenset[str] = frozenset()
    """Names of the others, without the first `_USUAL` of the protocol."""
    faults: tuple[str, ...] = ()
    """The first `_MOST_FAULTS` of their faults."""
    further: int = 0
    """Number of the other faults."""

    @property
    def size(self) -> int:
        """Metrics that count towards the limit. A birth without metrics counts as one."""
        return max(1, len(self.metrics) + len(self.skipped))


@dataclass(slots=True)
class Birth:
    """A birth of a node or device, and its mapping."""

    given: Given
    mapping: CompiledMapping
    faults: tuple[str, ...]
    skipped: frozenset[str]
    """Metrics that cannot be observed."""

    @property
    def metrics(self) -> dict[str, Definition]:
        """Metrics with a datatype that is read, by name."""
        return self.given.metrics


class Births:
    """The known births, within a limit, and their mappings."""

    def __init__(self, limits: MappingLimits, *, writable: Iterable[str], store: bool, most: int) -> None:
        """`writable`: globs of the paths of metrics that can be set. `most`: metrics of all births."""
        units = FileUnits({}, NAMESPACES, strict=True, faults=FaultsOfTable())
        self._compiler = MappingCompiler("sparkplug", NAMESPACES, units, ReadingKeys(), own=False, limits=limits)
        self._writable = tuple(writable)
        self._store = store
        self._most = most
        self.known: dict[Source, Birth] = {}

    def put(self, source: Source, metrics: Iterable[Metric]) -> bool:
        """Note a birth. Returns whether mappings have changed. Raises `BadMetric` if the birth cannot be used."""
        given = _defined(metrics)
        known = self.known.get(source)
        if known is not None and known.given == given:
            return False
        of_node = self.known.get(Source(source.group, source.node)) if source.device else None
        if of_node is not None and source.device in of_node.metrics:
            raise BadMetric(because("metric_of_node"))
        others = sum(each.given.size for other, each in self.known.items() if other != source)
        if others + given.size > self._most:
            raise BadMetric(because("metrics_limit", limit=self._most))
        self.known[source] = self._compiled(source, given)
        return known is None or known.metrics != given.metrics

    def forget(self, group: str, node: str) -> None:
        """Forget a node with its devices."""
        for source in [each for each in self.known if (each.group, each.node) == (group, node)]:
            del self.known[source]

    def pack(self) -> MappingPack:
        """Return all mappings."""
        return MappingPack("sparkplug", tuple(birth.mapping for birth in self.known.values()), own=False)

    def faults(self) -> list[dict[str, object]]:
        """Parts of births that cannot be used: as `MappingFiles.faults`, with the node or device as `file`."""
        return [
            listed_fault(source.path, reason) for source, birth in list(self.known.items()) for reason in birth.faults
        ]

    def dump(self) -> list[object]:
        """Return what `restore` takes, as JSON: faults without their codes, which the next birth has again.

        Also another thread may call it.
        """
        return [
            [
                *(source.group, source.node, source.device),
                [list(astuple(each)) for each in birth.metrics.values()],
                *(sorted(birth.given.skipped), list(map(str, birth.given.faults)), birth.given.further),
            ]
            for source, birth in tuple(self.known.items())
        ]

    def restore(self, dumped: Iterable[Any], takes: Callable[[Source], bool]) -> None:
        """Replace all births by those of an earlier run that `takes` permits, within the limit.

        Raises an exception if they are not what `dump` returns, and changes nothing then.
        """
        before, self.known = self.known, {}
        try:
            size = 0
            for group, node, device, metrics, skipped, faults, further in dumped:
                source = Source(str(group), str(node), str(device))
                found = {
                    str(name): Definition(str(name), int(kind), str(unit), bool(fix))
                    for name, kind, unit, fix in metrics
                }
                if any(each.datatype not in DATATYPES for each in found.values()):
                    raise ValueError("a datatype is not known")
                given = Given(found, frozenset(map(str, skipped)), tuple(map(str, faults)), int(further))
                if size + given.size <= self._most and takes(source):
                    self.known[source] = self._compiled(source, given)
                    size += given.size
        except BaseException:
            self.known = before
            raise

    def _compiled(self, source: Source, given: Given) -> Birth:
        """Compile a birth without the metrics that cannot be observed. Raises `BadMetric`."""
        available: Keys = {
            "path": "available",
            "observation": source.available,
            "property": f"{PROPERTIES}available",
            "label": literal(f"available: {source.path}"),
            "datatype": "boolean",
            "required": False,
        }
        # A metric of a device has one level more than the device.
        devices = {each.iri for each in self.known if each.device} if not source.device else set()
        readings = {"": available}
        lost: dict[str, str] = {}
        notes: list[str] = []
        for definition in given.metrics.values():
            try:
                readings[definition.name] = self._reading(source, definition, devices, notes)
            except BadMetric as error:
                lost[definition.name] = reason_of(error)
        while (mapping := self._mapping(source, readings, lost)) is None:
            readings = {name: keys for name, keys in readings.items() if name not in lost}
        # Metrics without observations first, because the list is cut.
        faults = [*given.faults, *(placed(clean(name), reason) for name, reason in lost.items()), *notes]
        shown = faults[:_MOST_FAULTS]
        if further := len(faults) - len(shown) + given.further:
            shown.append(because("further_problems", count=further))
        return Birth(given, mapping, tuple(shown), given.skipped | lost.keys())

    def _reading(self, source: Source, definition: Definition, devices: set[str], faults: list[str]) -> Keys:
        """Return the keys of a reading. `devices`: IRIs that its observation cannot have. Raises `BadMetric`."""
        name, datatype = definition.name, DATATYPES[definition.datatype]
        mark = "'" if '"' in name else '"'
        if mark in name or not is_plain(name):
            raise BadMetric(because("metric_name"))
        observation = source.observation(name)
        if observation in devices:
            raise BadMetric(because("metric_of_device"))
        keys: Keys = {
            "path": f"metrics[{mark}{name}{mark}].value",
            "observation": observation,
            "property": PROPERTIES + property_name(name.rpartition("/")[2]),
            "label": literal(f"{name} of {source.device or source.node}"),
            "datatype": datatype.key,
            "required": False,
        }
        keys |= _unit(definition, faults)
        if self._sets(source, definition):
            if "scale" in keys:
                faults.append(placed(clean(name), because("unit_converted")))
            else:
                keys["set"] = {"topic": literal(source.command(name)), "qos": 0}
                if datatype.limits is not None:
                    keys["set"] |= dict(zip(("min", "max"), datatype.limits, strict=True))
        return keys

    def _sets(self, source: Source, definition: Definition) -> bool:
        if definition.read_only or definition.datatype not in _SETTABLE:
            return False
        path = f"{source.path}/{definition.name}"
        return any(fnmatchcase(path, pattern) for pattern in self._writable)

    def _mapping(self, source: Source, readings: dict[str, Keys], lost: dict[str, str]) -> CompiledMapping | None:
        """Compile a mapping as one of a file. `readings`: by the names of their metrics, "": the availability.

        Returns None after some readings with faults were added to `lost`. Raises `BadMetric` for any other fault.
        """
        keys: Keys = {
            "name": clean(source.path),
            "topic": literal(source.data_topic),
            "payload": "json",
            "sensor": source.iri,
            "location": _PLACES + quote(source.group, safe=":"),
            "time": {"path": "@.timestamp", "format": "unix_ms"},
            "readings": list(readings.values()),
            **({"store": "change"} if self._store else {}),
        }
        found = FaultsOfTable()
        faults: list[tuple[int, str]]
        try:
            mapping = self._compiler.compile(MappingSpec.model_validate(keys), found)
            if mapping is not None:
                return replace(mapping, announced=True)
            faults = [
                (int(match[1]) if (match := _READING(error.fault.key or "")) else 0, error.fault.reason)
                for error in found.found
                if not error.warning
            ]
        except ValidationError as error:
            faults = [
                (int(each["loc"][1]) if each["loc"][0] == "readings" and len(each["loc"]) > 1 else 0, each["msg"])
                for each in error.errors(include_input=False)
            ]
        names = list(readings)
        for index, reason in faults:
            if not index:
                raise BadMetric(because("not_mapped", reason=clean(reason)))
            lost.setdefault(names[index], because("not_mapped", reason=clean(reason)))
        if not faults:
            raise BadMetric("it cannot be mapped")
        return None


def is_of_protocol(name: str | None) -> bool:
    """Whether a metric is a part of the protocol, and no value of a device."""
    return name is not None and (name == BDSEQ or name.startswith(_CONTROLS))


def _defined(metrics: Iterable[Metric]) -> Given:
    """Return the content of a birth."""
    found: dict[str, Definition] = {}
    faults: list[str] = []
    skipped: set[str] = set()
    protocol = 0
    for metric in metrics:
        name = metric.name
        if name is None:
            faults.append(because("metric_unnamed"))
            continue
        if is_of_protocol(name):
            protocol += 1
            if protocol > _USUAL:
                skipped.add(name)
            continue
        try:
            datatype_of(metric.datatype)
        except BadMetric as error:
            faults.append(placed(clean(name), reason_of(error)))
            skipped.add(name)
            continue
        if name in found:
            faults.append(placed(clean(name), because("birth_twice")))
            continue
        unit = metric.properties.get("engUnit")
        text = unit.strip() if isinstance(unit, str) else ""
        found[name] = Definition(name, metric.datatype or 0, text[:40], metric.properties.get("readOnly") is True)
    first = tuple(faults[:_MOST_FAULTS])
    return Given(found, frozenset(skipped - found.keys()), first, len(faults) - len(first))


def _unit(definition: Definition, faults: list[str]) -> Mapping[str, object]:
    """Return the keys of the unit, and of the scale if QUDT lacks it."""
    if not definition.unit or DATATYPES[definition.datatype].key not in ("integer", "number"):
        return {}
    scaled = unit_of(definition.unit, "")
    if scaled is None:
        faults.append(placed(clean(definition.name), because("unit_unknown", name=clean(definition.unit))))
        return {}
    factor = Decimal(scaled.scale)
    if factor == 1:
        return {"unit": scaled.iri}
    return {"unit": scaled.iri, "scale": factor, "datatype": "number"}
