"""Conditions in mapping files (`when`), compiled."""

from __future__ import annotations

from collections.abc import Sequence

from edge.mapping.errors import BadKeyError, under
from edge.mapping.fault_reasons import because
from edge.mapping.jsonpath import parse_path
from edge.mapping.model import ConditionSpec, ReadingSpec
from edge.mapping.payload_position import DOCUMENTS
from edge.mapping.regexes import compile_regex
from edge.mapping.rules import Condition
from edge.mapping.settings import MappingLimits


def compile_conditions(spec: ReadingSpec, payload: str, limits: MappingLimits) -> tuple[Condition, ...]:
    """Return the conditions of a mapping or reading. Raises `BadKeyError`."""
    when = spec.when if isinstance(spec.when, list) else [spec.when] if spec.when is not None else []
    conditions = tuple(_condition(each, limits) for each in when)
    if payload not in DOCUMENTS and parted(conditions)[1]:
        raise BadKeyError(f'"@" is the object that contains a value, and a {payload} payload has none.', key="when")
    return conditions


def parted(conditions: Sequence[Condition]) -> tuple[tuple[Condition, ...], tuple[Condition, ...]]:
    """Part conditions on the document from those on the object that contains the value ("@")."""
    local = tuple(each for each in conditions if each.path is not None and each.path.relative)
    return tuple(each for each in conditions if each not in local), local


def _condition(spec: ConditionSpec, limits: MappingLimits) -> Condition:
    one_of = tuple(spec.one_of) if spec.one_of is not None else None
    if spec.equals is not None:
        one_of = (spec.equals,)
    regex = None if spec.matches is None else under("when", compile_regex, spec.matches)
    if spec.exists is None and one_of is None and regex is None:
        raise BadKeyError(because("condition_empty"), key="when", allowed="exists, equals, one_of, matches")
    if spec.path is None and spec.exists is not None:
        raise BadKeyError(because("exists_path"), key="when")
    path = None if spec.path is None else under("when", parse_path, spec.path)
    return Condition(path, spec.exists, one_of, regex, limits.regex_text)
