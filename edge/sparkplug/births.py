"""Births of edge nodes and devices as mappings: the metrics that they define become observations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import quote

from pydantic import ValidationError

from edge.discovery.announcement import BadAnnouncement, clean, encoded
from edge.discovery.device_classes import PROPERTIES, unit_of
from edge.discovery.mappings import literal, property_name
from edge.mapping.compiling import MappingCompiler
from edge.mapping.errors import FaultsOfTable
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
_SETTABLE: Final = frozenset({*range(1, 13), 14, 15})
_MOST_FAULTS: Final = 3
"""Faults of a birth that are listed."""

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
            raise BadMetric(str(error)) from None


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as its birth defines it."""

    name: str
    datatype: int
    unit: str = ""
    """As the node writes it; empty: none."""
    read_only: bool = False


@dataclass(slots=True)
class Birth:
    """The metrics of a node or device that can be observed."""

    metrics: dict[str, Definition]
    mapping: CompiledMapping | None = None
    faults: tuple[str, ...] = ()
    skipped: frozenset[str] = field(default_factory=frozenset)
    """Metrics that cannot be observed."""


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
        found, faults, skipped = _defined(metrics)
        known = self.known.get(source)
        if known is not None and known.metrics == found:
            known.skipped = skipped
            return False
        of_node = self.known.get(Source(source.group, source.node)) if source.device else None
        if of_node is not None and source.device in of_node.metrics:
            raise BadMetric("its node has a metric of the same name")
        others = sum(len(each.metrics) for other, each in self.known.items() if other != source)
        if others + len(found) > self._most:
            raise BadMetric(f"all nodes would have more than {self._most} metrics (sparkplug.max_metrics)")
        self.known[source] = self._compiled(source, found, faults, skipped)
        return True

    def forget(self, group: str, node: str) -> None:
        """Forget a node with its devices."""
        for source in [each for each in self.known if (each.group, each.node) == (group, node)]:
            del self.known[source]

    def pack(self) -> MappingPack:
        """Return all mappings."""
        found = [birth.mapping for birth in self.known.values() if birth.mapping is not None]
        return MappingPack("sparkplug", tuple(found), own=False)

    def faults(self) -> list[dict[str, object]]:
        """Parts of births that cannot be used: `file`, `reason`, `previous_version_applies`."""
        return [
            {"file": source.path, "reason": reason, "previous_version_applies": False}
            for source, birth in list(self.known.items())
            for reason in birth.faults
        ]

    def dump(self) -> list[object]:
        """Return what `restore` takes, as JSON."""
        return [
            [source.group, source.node, source.device, [list(astuple(each)) for each in birth.metrics.values()]]
            for source, birth in self.known.items()
        ]

    def restore(self, dumped: Iterable[Any]) -> None:
        """Take the births of an earlier run. Raises an exception if they are not what `dump` returns."""
        for group, node, device, metrics in dumped:
            source = Source(str(group), str(node), str(device))
            definitions = [Definition(str(name), int(kind), str(unit), bool(fix)) for name, kind, unit, fix in metrics]
            if any(each.datatype not in DATATYPES for each in definitions):
                raise ValueError("a datatype is not known")
            found = {each.name: each for each in definitions}
            self.known[source] = self._compiled(source, found, [], frozenset())

    def _compiled(
        self, source: Source, metrics: dict[str, Definition], faults: list[str], skipped: frozenset[str]
    ) -> Birth:
        readings: list[Keys] = [
            {"path": "available", "observation": source.available, "property": f"{PROPERTIES}available"}
            | {"label": literal(f"available: {source.path}"), "datatype": "boolean", "required": False}
        ]
        for definition in metrics.values():
            try:
                readings.append(self._reading(source, definition, faults))
            except BadMetric as error:
                faults.append(f"{clean(definition.name)}: {error}")
                skipped |= {definition.name}
        mapping = self._mapping(source, readings, faults)
        shown = tuple(faults[:_MOST_FAULTS])
        if len(faults) > _MOST_FAULTS:
            shown += (f"{len(faults) - _MOST_FAULTS} further problems",)
        return Birth(metrics, mapping, shown, skipped)

    def _reading(self, source: Source, definition: Definition, faults: list[str]) -> Keys:
        """Return the keys of a reading. Raises `BadMetric`."""
        name, datatype = definition.name, DATATYPES[definition.datatype]
        mark = "'" if '"' in name else '"'
        if mark in name or clean(name, len(name)) != name:
            raise BadMetric("its name has control characters, blanks at its ends, or two kinds of quotation marks")
        observation = source.observation(name)
        devices = (each for each in self.known if each.device and each.iri == observation)
        if next(devices, None) is not None:
            raise BadMetric("a device of the node has the same name")
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
                faults.append(f"{name}: it cannot be set, because its unit is converted")
            else:
                bounds = datatype.bounds or (None, None)
                setter = {"topic": literal(source.command(name)), "qos": 0, "min": bounds[0], "max": bounds[1]}
                keys["set"] = {key: value for key, value in setter.items() if value is not None}
        return keys

    def _sets(self, source: Source, definition: Definition) -> bool:
        if definition.read_only or definition.datatype not in _SETTABLE:
            return False
        path = f"{source.path}/{definition.name}"
        return any(fnmatchcase(path, pattern) for pattern in self._writable)

    def _mapping(self, source: Source, readings: list[Keys], faults: list[str]) -> CompiledMapping | None:
        """Compile a mapping as one of a file."""
        keys: Keys = {
            "name": clean(source.path),
            "topic": literal(source.data_topic),
            "payload": "json",
            "sensor": source.iri,
            "location": _PLACES + quote(source.group, safe=":"),
            "time": {"path": "@.timestamp", "format": "unix_ms"},
            "readings": readings,
            **({"store": "change"} if self._store else {}),
        }
        found = FaultsOfTable()
        try:
            mapping = self._compiler.compile(MappingSpec.model_validate(keys), found)
        except ValidationError as error:
            faults.append(f"it cannot be mapped: {clean(str(error.errors(include_input=False)[0]['msg']))}")
            return None
        faults.extend(clean(str(error.fault)) for error in found.found if not error.warning)
        return None if mapping is None else replace(mapping, announced=True)


def _defined(metrics: Iterable[Metric]) -> tuple[dict[str, Definition], list[str], frozenset[str]]:
    """Return the metrics of a birth by name, faults, and the names of those that cannot be observed."""
    found: dict[str, Definition] = {}
    faults: list[str] = []
    skipped: set[str] = set()
    for metric in metrics:
        name = metric.name
        if name is None:
            faults.append("a metric has no name")
            continue
        if name == BDSEQ or name.startswith(_CONTROLS):
            skipped.add(name)
            continue
        try:
            datatype_of(metric.datatype)
        except BadMetric as error:
            faults.append(f"{clean(name)}: {error}")
            skipped.add(name)
            continue
        if name in found:
            faults.append(f"{clean(name)}: the birth has it twice")
            continue
        unit = metric.properties.get("engUnit")
        text = unit.strip() if isinstance(unit, str) else ""
        found[name] = Definition(name, metric.datatype or 0, text[:40], metric.properties.get("readOnly") is True)
    return found, faults, frozenset(skipped)


def _unit(definition: Definition, faults: list[str]) -> Mapping[str, object]:
    """Return the keys of the unit, and of the scale if QUDT lacks it."""
    if not definition.unit or DATATYPES[definition.datatype].key not in ("integer", "number"):
        return {}
    scaled = unit_of(definition.unit, "")
    if scaled is None:
        faults.append(f'{clean(definition.name)}: the unit "{clean(definition.unit)}" is not known, so it has none')
        return {}
    factor = Decimal(scaled.scale)
    if factor == 1:
        return {"unit": scaled.iri}
    return {"unit": scaled.iri, "scale": factor, "datatype": "number"}
