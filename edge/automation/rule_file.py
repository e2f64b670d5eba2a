"""Reader of rules: TOML with one rule a file. Faults have lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from edge.automation.errors import RuleError, RuleFault
from edge.automation.rule import Rule
from edge.mapping.errors import BadKeyError, line_of, nearest
from edge.mapping.prefixes import with_prefixes
from edge.mapping.terms import NAMESPACES, constant
from edge.protocol.due_time import read_delay
from edge.sparql.errors import SparqlError
from edge.sparql.query import read_query
from edge.sparql.tokens import tokenize, variables

_LINE: Final = re.compile(r"\(at line ([0-9]+)")
_PREFIXES: Final = """\
PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
"""
_SMALLEST, _LARGEST = -30, 30
"""Powers of ten between which numbers are accepted."""
_COMPARED: Final = ("above", "below", "equals", "silent")


def _iri(text: str) -> str:
    try:
        return constant(text, NAMESPACES)
    except BadKeyError as error:
        raise ValueError(str(error)) from None


def _duration(text: str) -> str:
    try:
        read_delay(text)
    except ValueError as error:
        raise ValueError(str(error).removeprefix('"delay" ')) from None
    return text


def _number(value: int | Decimal) -> Decimal:
    number = Decimal(value)
    if not number.is_finite() or (number and not _SMALLEST <= number.adjusted() <= _LARGEST):
        raise ValueError("It must be a number of at most 30 digits.")
    return number


_Iri = Annotated[str, AfterValidator(_iri)]
_Duration = Annotated[str, AfterValidator(_duration)]
_Number = Annotated[int | Decimal, AfterValidator(_number)]


class RuleSpec(BaseModel):
    """The keys of a rule."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    label: str = Field(default="", max_length=200, description="Name of the rule for people.")
    enabled: bool = Field(default=True, description="Whether the rule applies.")
    observation: _Iri | None = Field(default=None, description="The observation that the rule watches.")
    property: _Iri | None = Field(default=None, description="It watches all observations of this property.")
    place: _Iri | None = Field(default=None, description="It watches the observations of this place only.")
    above: _Number | None = Field(default=None, description="Situation: the value is greater than this number.")
    below: _Number | None = Field(default=None, description="Situation: the value is less than this number.")
    equals: bool | str | _Number | None = Field(default=None, description="Situation: the value is this one.")
    silent: _Duration | None = Field(default=None, description="Situation: no value for this time.")
    query: str | None = Field(
        default=None, max_length=16_384, description="SELECT query; each solution is a situation."
    )
    key: list[str] | None = Field(
        default=None, min_length=1, description="Variables of the query that identify a situation. Default: all."
    )
    lasts: _Duration = Field(
        default="PT0S", alias="for", description="Time for which the situation must last before it begins."
    )
    update: str = Field(default="", max_length=16_384, description="Update for the begin of a situation.")
    end_lasts: _Duration = Field(
        default="PT0S", alias="end_for", description="Time after which a situation that is over ends."
    )
    end_update: str = Field(default="", max_length=16_384, description="Update for the end of a situation.")


_KEYS: Final = {field.alias or name for name, field in RuleSpec.model_fields.items()}


def read_rule(text: str, name: str) -> Rule:
    """Return the rule of a text. Raises `RuleError` with all faults. The engine checks the updates later."""
    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError, ArithmeticError) as error:
        found = _LINE.search(str(error))
        raise RuleError([RuleFault(f"Not TOML: {error}.", line=int(found[1]) if found else None)]) from None
    try:
        spec = RuleSpec.model_validate(data)
    except ValidationError as error:
        raise RuleError(_faults(error, text)) from None
    try:
        return _compiled(spec, name)
    except BadKeyError as error:
        raise RuleError([fault(text, error.fault.key or "", str(error))]) from None


def fault(text: str, key: str, reason: str) -> RuleFault:
    """Return a fault at the line of a key."""
    return RuleFault(reason, key, line_of(text, [key], "", None, ()) if key else None)


def _faults(error: ValidationError, text: str) -> list[RuleFault]:
    faults: dict[str, RuleFault] = {}
    for detail in error.errors():
        key = str(detail["loc"][0])
        if detail["type"] == "extra_forbidden":
            near = nearest(key, _KEYS)
            reason = f"Unknown key.{f' Did you mean {near}?' if near else ''} The keys are {', '.join(sorted(_KEYS))}."
        elif key == "equals":
            reason = "It must be true, false, a number or a text."
        elif key in ("above", "below") and detail["type"] != "value_error":
            reason = "It must be a number."
        else:
            message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "It must be")
            reason = f"{message[:1].upper()}{message[1:]}{'' if message.endswith('.') else '.'}"
        faults.setdefault(key, fault(text, key, reason))
    return list(faults.values())


def _compiled(spec: RuleSpec, name: str) -> Rule:
    durations: dict[str, int] = {
        "lasts": read_delay(spec.lasts),
        "end_lasts": read_delay(spec.end_lasts),
        "silent": 0 if spec.silent is None else read_delay(spec.silent),
    }
    if spec.silent is not None and not durations["silent"]:
        raise BadKeyError("The time without a value must be longer than zero.", key="silent")
    if spec.silent is not None and durations["lasts"]:
        raise BadKeyError('"silent" is a time already; leave "for" out.', key="for")
    if spec.silent is not None and durations["end_lasts"]:
        raise BadKeyError("A silence ends with the next value; leave this out.", key="end_for")
    common: dict[str, Any] = {
        "name": name,
        "label": spec.label or name,
        "enabled": spec.enabled,
        "update": with_prefixes(spec.update, NAMESPACES) if spec.update.strip() else "",
        "end_update": with_prefixes(spec.end_update, NAMESPACES) if spec.end_update.strip() else "",
        "keys": {key: _json(value) for key, value in spec.model_dump(by_alias=True, exclude_unset=True).items()},
        **durations,
    }
    if spec.query is not None:
        return _of_query(spec, spec.query, common)
    return _of_observations(spec, common)


def _of_query(spec: RuleSpec, query: str, common: dict[str, Any]) -> Rule:
    for name in ("observation", "property", "place", "above", "below", "equals"):
        if getattr(spec, name) is not None:
            raise BadKeyError(f'"{name}" and "query" exclude each other; write the condition into the query.', key=name)
    text = with_prefixes(query, NAMESPACES)
    selected = _variables(text)
    key = spec.key or selected
    if unknown := [each for each in key if each not in selected]:
        raise BadKeyError(f"The query does not select ?{unknown[0]}; it selects {', '.join(selected)}.", key="key")
    if spec.silent is not None and set(key) == set(selected):
        raise BadKeyError(
            'With "silent", name the variables that identify a situation; a change of the others restarts the time.',
            key="key",
        )
    return _with_needs(Rule(query=text, variables=selected, key=key, **common))


def _variables(query: str) -> list[str]:
    try:
        found = read_query(query)
    except SparqlError as error:
        raise BadKeyError(str(error), key="query") from None
    if found.form != "SELECT" or not found.variables:
        raise BadKeyError("The query must be a SELECT with at least one variable.", key="query")
    if reserved := [each.name for each in found.variables if each.name.startswith("_")]:
        raise BadKeyError(f"Names that begin with _ are reserved: rename ?{reserved[0]}.", key="query")
    return [each.name for each in found.variables]


def _of_observations(spec: RuleSpec, common: dict[str, Any]) -> Rule:
    if spec.observation is None and spec.property is None:
        raise BadKeyError('A rule needs an "observation", a "property" or a "query" that says what it watches.', key="")
    if spec.observation is not None and (spec.property is not None or spec.place is not None):
        raise BadKeyError('An "observation" has one property and one place; leave them out.', key="observation")
    if spec.key is not None:
        raise BadKeyError('"key" belongs to a "query".', key="key")
    compared = [key for key in _COMPARED if getattr(spec, key) is not None]
    if not compared:
        raise BadKeyError(f"A rule needs one of {', '.join(_COMPARED)}.", key="")
    if len(compared) > 1 and compared != ["above", "below"]:
        raise BadKeyError(f'"{compared[0]}" and "{compared[1]}" exclude each other.', key=compared[1])
    if spec.above is not None and spec.below is not None and spec.above >= spec.below:
        raise BadKeyError(
            f"No number is above {spec.above} and below {spec.below}; make two rules for values outside these limits.",
            key="below",
        )
    subject = "?observation" if spec.observation is None else f"<{spec.observation}>"
    chosen = "" if spec.observation is None else f"BIND(<{spec.observation}> AS ?observation)"
    watched = "".join(
        f" {subject} sosa:{predicate} <{iri}> ."
        for predicate, iri in (("observedProperty", spec.property), ("hasFeatureOfInterest", spec.place))
        if iri is not None
    )
    times = "OPTIONAL { ?result time:hasTime ?instant . ?instant time:inXSDDateTimeStamp ?time }"
    query = (
        f"{_PREFIXES}SELECT ?observation ?value{' ?time' if spec.silent else ''} {{{watched}\n"
        f"  {subject} sosa:hasResult ?result . ?result qudt:numericValue ?value .\n"
        f"  {times if spec.silent else _filter(spec)} {chosen} }}"
    )
    observations = (
        f"SELECT ?observation {{ BIND(<{spec.observation}> AS ?observation) }}"
        if spec.observation is not None
        else f"{_PREFIXES}SELECT ?observation {{{watched} }}"
    )
    selected = ["observation", "value", *(["time"] if spec.silent else [])]
    return _with_needs(Rule(query=query, variables=selected, key=["observation"], observations=observations, **common))


def _with_needs(rule: Rule) -> Rule:
    """Note which variables of the query the updates use."""
    of_query = frozenset(rule.variables)
    return replace(rule, needed=of_query & _used(rule.update), end_needed=of_query & _used(rule.end_update))


def _used(update: str) -> frozenset[str]:
    try:
        return frozenset(variables(tokenize(update)))
    except SparqlError:  # the engine says what is wrong
        return frozenset()


def _filter(spec: RuleSpec) -> str:
    conditions: list[str] = []
    if spec.above is not None:
        conditions.append(f"?value > {_decimal(spec.above)}")
    if spec.below is not None:
        conditions.append(f"?value < {_decimal(spec.below)}")
    if isinstance(spec.equals, bool):
        conditions.append(f"?value = {'true' if spec.equals else 'false'}")
    elif isinstance(spec.equals, str):
        conditions.append(f"STR(?value) = {_quoted(spec.equals)}")
    elif spec.equals is not None:
        conditions.append(f"?value = {_decimal(spec.equals)}")
    return f"FILTER({' && '.join(conditions)})"


def _decimal(number: int | Decimal) -> str:
    text = f"{Decimal(number):f}"
    return text if "." in text else f"{text}.0"


def _json(value: object) -> object:
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == int(value) else float(value)


def _quoted(text: str) -> str:
    escapes: Sequence[tuple[str, str]] = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"))
    for character, escape in escapes:
        text = text.replace(character, escape)
    return f'"{text}"'
