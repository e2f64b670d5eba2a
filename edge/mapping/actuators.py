"""Actuators: convert solutions of a query to messages for devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

import pyoxigraph as ox

from edge.mapping.commands import TopicTemplate, payload_template
from edge.mapping.encode import from_hex
from edge.mapping.errors import BadKeyError, Fault, FaultsOfTable, nearest, under
from edge.mapping.fault_reasons import because
from edge.mapping.model import ActuatorSpec, CommandSpec, ConvertSpec, EncodeSpec
from edge.mapping.prefixes import declared, prefixes, with_prefixes
from edge.mapping.settings import MappingLimits
from edge.mapping.solution import CommandError, Solution, SolutionTerm
from edge.mapping.unused_keys import idle_conversions, idle_types
from edge.mapping.values import BadValueError, Converter, literal

# Pyoxigraph reports the position of a syntax error only in the text of its exception.
_ERROR: Final = re.compile(r"error at ([0-9]+):([0-9]+): (.*)", re.DOTALL)
_LONGEST_REASON: Final = 120
_VARIABLE: Final = re.compile(r"[?$](\w+)")


class Command(NamedTuple):
    """A message to send."""

    actuator: str
    """Name of the actuator with that of its pack."""
    topic: str
    payload: bytes
    qos: int
    retain: bool
    observation: str = ""
    """IRI of the observation whose desired value it is; empty for other messages."""
    value: str = ""
    """Lexical form of that value."""


class Topic(Protocol):
    """Topic of the messages of an actuator."""

    @property
    def text(self) -> str:
        """The topic as it is written, for errors."""

    def render(self, solution: Solution) -> str:
        """Return the topic for a solution. Raises `CommandError`."""

    @property
    def matches(self) -> Callable[[str], object]:
        """Returns a true value for a topic to which messages may go."""


class Message(Protocol):
    """Messages of an actuator."""

    @property
    def topic(self) -> Topic:
        """Their topic."""

    @property
    def hex(self) -> bool:
        """Whether the payload is in hexadecimal and sent as bytes."""

    def render(self, solution: Solution) -> Command:
        """Return the message for a solution. Raises `CommandError`."""


@dataclass(frozen=True, slots=True, eq=False)
class ActuatorMessage:
    """Template of one message."""

    actuator: str
    topic: TopicTemplate
    payload: Callable[[Solution], str]
    qos: int
    retain: bool
    limit: int
    hex: bool = False
    """Whether the payload is in hexadecimal and sent as bytes."""

    def render(self, solution: Solution) -> Command:
        """Build the message. Raises `CommandError`."""
        text = self.payload(solution)
        payload = from_hex(text) if self.hex else text.encode("utf-8", "surrogatepass")
        if len(payload) > self.limit:
            raise CommandError(f"the payload has {len(payload)} bytes, the limit is {self.limit}")
        return Command(self.actuator, self.topic.render(solution), payload, self.qos, self.retain)


@dataclass(frozen=True, slots=True, eq=False)
class Actuator:
    """One compiled actuator."""

    name: str
    spec: ActuatorSpec
    query: str
    """The query, with declarations of the prefixes that it uses."""
    added: Message
    """For each solution of the query: the messages that set the desired state of its topic."""
    removed: Message | None
    """For topics that no solution names any more."""
    converters: Mapping[str, Converter]
    rate: float | None
    """Maximum messages per second to one topic; None: the gateway's setting."""
    place: Fault
    """Its position in the file, for later messages."""

    def same(self, other: Actuator) -> bool:
        """Whether it behaves like `other`."""
        return self.query == other.query and self.spec == other.spec

    def writes(self, topic: str) -> bool:
        """Whether it may send messages to this topic."""
        messages = (self.added, self.removed) if self.removed is not None else (self.added,)
        return any(message.topic.matches(topic) for message in messages)

    def solution(self, terms: Mapping[str, SolutionTerm]) -> Solution:
        """Return a solution of its query, with its conversions."""
        return Solution(terms, self.converters)


class ActuatorCompiler:
    """Compiles the actuators of one file."""

    def __init__(self, pack: str, namespaces: Mapping[str, str], limits: MappingLimits) -> None:
        self.pack = pack
        self.namespaces = namespaces
        self.limits = limits
        self._names: set[str] = set()

    def compile(self, spec: ActuatorSpec, place: Fault, faults: FaultsOfTable) -> Actuator | None:
        """Compile one actuator. Adds its faults to `faults`, and returns None if it cannot be used."""
        attempt = faults.attempt
        name = f"{self.pack}/{spec.name or spec.topic}"
        if name in self._names:
            faults.add(BadKeyError("Another actuator of this file has that name.", key="name"))
        self._names.add(name)
        query = with_prefixes(spec.query, self.namespaces)
        variables = attempt(lambda: _variables(spec.query, query, self.namespaces))
        converters = {}
        for each, convert in spec.convert.items():
            found = attempt(partial(_converter, each, convert))
            if found is not None:
                converters[each] = found
        if variables is None:
            return None
        for unknown in [each for each in spec.convert if each not in variables]:
            faults.add(
                BadKeyError(
                    f"The query does not select ?{unknown}.",
                    key=f"convert.{unknown}",
                    nearest=nearest(unknown, variables),
                    allowed=", ".join(variables),
                )
            )
        added = self._message(name, spec, spec, variables, faults)
        removed = None
        if spec.removed is not None:
            own = FaultsOfTable()
            removed = self._message(name, spec.removed, spec, variables, own)
            faults.found += map(_within_removed, own.found)
        for key, reason in (*idle_conversions(spec), *idle_types(spec)):
            faults.warn(BadKeyError(reason, key=key))
        if faults.fatal or added is None:
            return None
        return Actuator(
            name=name,
            spec=spec,
            query=query,
            added=added,
            removed=removed,
            converters=converters,
            rate=None if spec.rate is None else float(spec.rate),
            place=place,
        )

    def _message(
        self, name: str, spec: CommandSpec, base: CommandSpec, variables: Collection[str], faults: FaultsOfTable
    ) -> ActuatorMessage | None:
        attempt = faults.attempt
        topic = spec.topic if spec.topic is not None else base.topic
        if topic is None:
            faults.add(BadKeyError(because("actuator_topic_missing"), key="topic", allowed="devices/{id}/set"))
        if spec.payload is None:
            faults.add(BadKeyError(because("payload_missing"), key="payload", allowed="a text or a table"))
        as_hex = (spec.encoding if spec.encoding is not None else base.encoding) == "hex"
        if as_hex and spec.payload is not None and not isinstance(spec.payload, str):
            reason = "A hexadecimal payload must be a text."
            faults.add(BadKeyError(reason, key="payload", allowed='"A0 {level|u8}"'))
        encode = spec.encode if spec.encode is not None or isinstance(spec.payload, str) else base.encode
        qos = spec.qos if spec.qos is not None else base.qos
        retain = spec.retain if spec.retain is not None else base.retain
        template = None if topic is None else attempt(lambda: under("topic", _topic_of(variables), topic))
        payload = None
        if spec.payload is not None:
            inherited = encode is not None and spec.encode is None
            payload = attempt(lambda: _payload_of(spec.payload, variables, encode, as_hex=as_hex, inherited=inherited))
        if template is None or payload is None:
            return None
        return ActuatorMessage(
            actuator=name,
            topic=template,
            payload=payload,
            qos=1 if qos is None else qos,
            retain=bool(retain),
            limit=self.limits.payload,
            hex=as_hex,
        )


def _topic_of(variables: Collection[str]) -> Callable[[str], TopicTemplate]:
    return lambda text: TopicTemplate(text, variables)


def _payload_of(
    payload: object, variables: Collection[str], encode: EncodeSpec | None, *, as_hex: bool, inherited: bool
) -> Callable[[Solution], str]:
    """Compile a payload. `inherited`: its `encode` is that of the actuator. Raises `BadKeyError`."""
    try:
        return payload_template(payload, variables, encode=encode, as_hex=as_hex)
    except BadKeyError as error:
        if encode is not None and inherited and (error.fault.key or "").startswith("encode"):
            raise BadKeyError(
                f"The `encode` of the actuator applies to this payload too, which has no {encode.path}.",
                key="payload",
                allowed=f"a payload with {encode.path}, a text, or an `encode` for this message",
            ) from None
        raise error.under("payload") from None


def _within_removed(error: BadKeyError) -> BadKeyError:
    fault = error.fault
    key = "removed" if fault.key is None else f"removed.{fault.key}"
    return BadKeyError(fault.reason, key=key, allowed=fault.allowed, nearest=fault.nearest)


def _converter(name: str, spec: ConvertSpec) -> Converter:
    table = None
    if spec.values is not None:
        table = {}
        for text, value in spec.values.items():
            try:
                table[text] = literal(value, None)
            except BadValueError as error:
                raise BadKeyError(f'The value for "{text}" {error}.', key=f"convert.{name}.values") from None
    numeric = any(each is not None for each in (spec.scale, spec.offset, spec.min, spec.max))
    if table is not None and numeric:
        raise BadKeyError("A table of values is not scaled or bounded.", key=f"convert.{name}")
    return Converter(
        kind="number" if numeric else "auto",
        table=table,
        scale=spec.scale,
        offset=spec.offset,
        low=spec.min,
        high=spec.max,
    )


def _variables(text: str, query: str, namespaces: Mapping[str, str]) -> tuple[str, ...]:
    """Return the selected variables. Raises `BadKeyError`. The engine checks the query itself later."""
    try:
        # The store is empty and nothing iterates over the solutions: this call only parses the query.
        result = ox.Store().query(query)
    except SyntaxError as error:
        raise _not_sparql(error, text, len(query) - len(text), namespaces) from None
    except RuntimeError:
        # A function that only the engine knows: every variable is assumed to be selected.
        return tuple(dict.fromkeys(_VARIABLE.findall(text)))
    if not isinstance(result, ox.QuerySolutions):
        raise BadKeyError("The query must be a SELECT.", key="query")
    return tuple(variable.value for variable in result.variables)


def _not_sparql(error: SyntaxError, text: str, shift: int, namespaces: Mapping[str, str]) -> BadKeyError:
    known = {*namespaces, *declared(text)}
    for name in prefixes(text):
        if name not in known:
            line = next((n for n, one in enumerate(text.splitlines(), 1) if name in prefixes(one)), 1)
            return BadKeyError(
                f'The prefix "{name}" is not known; declare it in [namespaces].',
                key="query",
                nearest=nearest(name, known),
                line=line,
            )
    found = _ERROR.match(str(error))
    if found is None:
        return BadKeyError(f"Not a SPARQL query: {_cut(str(error))}.", key="query")
    line, column = int(found[1]), int(found[2])
    # The PREFIX declarations that were inserted on the first line shift its columns.
    column -= shift if line == 1 else 0
    where = f"at column {max(column, 1)} of this line"
    return BadKeyError(f"Not a SPARQL query, {where}: {_cut(found[3])}.", key="query", line=line)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "..."
