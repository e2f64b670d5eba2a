"""Plan cache: texts that differ from an earlier one only in constants are not parsed again.

A plan leaves some constants open. It serves every text with the same fingerprint, with the same constants at the fixed
places, and with constants of the same kinds at the open places. Constants that were equal in all texts so far, such as
the subject of a DELETE and of its WHERE, are one constant of the plan. A text that no plan serves, or with unreadable
constants, is compiled on its own, so it gets exactly the same errors as without the cache.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from edge.engine.sparql.constants import Constants
from edge.engine.sparql.terms_text import Names
from edge.protocol.errors import LimitExceeded, ParsingFailed
from edge.protocol.results import Term
from edge.sparql.algebra import Parameter
from edge.sparql.cursor import Parameters
from edge.sparql.fingerprint import ConstantPlace, fingerprint, places, prologue
from edge.sparql.text_template import text_template

T = TypeVar("T")
C = TypeVar("C", bound=Hashable)

LONGEST_TEXT: Final = 16_384
"""Characters. Longer texts are data instead of templates, and their plans are not cached."""

_TEMPLATES: Final = 4
"""Number of compiled text templates that a text is matched against."""
_OFTEN: Final = 32
"""Uses after which a plan gets a text template, which takes a millisecond to compile."""

_PROLOGUES: Final = 8
"""Number of prologues that a text is compared with."""


@dataclass(frozen=True, slots=True)
class Compiled(Generic[T]):
    """A plan, the constants that it leaves open, and the declarations for reading them."""

    plan: T
    parameters: Collection[Parameter]
    names: Names


Compile = Callable[[str, C | None, Parameters], Compiled[T]]
"""Compiles a text in a context. It may leave the given constants open. Raises the errors of the text."""

_Select = Callable[[Sequence[str]], Sequence[str]]

_Groups = Sequence[int]
"""For each open place the number of its constant, from 0 in order of appearance. Equal constants share a number."""


@dataclass(eq=False, slots=True)
class _TextGroup:
    """Plans with the same fingerprint and the same open constants of the same kinds."""

    fingerprint: Hashable
    likeness: tuple[object, ...]
    """Open constants, their signs and kinds: unique among the groups of a fingerprint."""
    places: Sequence[int]
    """Indexes of the open constants."""
    groups: _Groups
    equal: Sequence[tuple[int, int]]
    """Pairs of constants that must be equal in a text."""
    open: _Select
    """Selects the open constants of a text, each once, numbers with their signs."""
    fixed: _Select
    """Selects all other constants."""
    kinds: Sequence[type[Term]]
    size: int = 0
    """Number of plans."""


@dataclass(eq=False, slots=True)
class _CachedPlan(Generic[T]):
    """A cached plan."""

    plan: T
    readable: Constants
    """Reads its open constants."""
    uses: int = 0


class _TemplatePlan(NamedTuple, Generic[T]):
    """A plan with a text template."""

    match: Callable[[str], re.Match[str] | None]
    signs: Sequence[str] | None
    """Sign that belongs to each open constant; None if no constant has one."""
    context: Hashable
    known: _CachedPlan[T]


class PlanCache(Generic[C, T]):
    """Cache of compiled plans. Thread-safe."""

    def __init__(self, compile_: Compile[C, T], size: int) -> None:
        """`size`: number of cached plans. The least recently used ones are evicted."""
        self._compile = compile_
        self._size = size
        self._groups_by_fingerprint: dict[Hashable, tuple[_TextGroup, ...]] = {}
        self._plans: OrderedDict[tuple[_TextGroup, Sequence[str]], _CachedPlan[T]] = OrderedDict()
        self._constants: WeakValueDictionary[Names, Constants] = WeakValueDictionary()
        self._prologues: tuple[str, ...] = ()
        self._templates: tuple[_TemplatePlan[T], ...] = ()
        self._changing = threading.Lock()

    def __len__(self) -> int:
        """Return the number of cached plans."""
        return len(self._plans)

    def get(self, text: str, context: C | None = None) -> tuple[T, Sequence[Term]]:
        """Return the plan of a text in a context, and its constants by `Parameter.index`, with signs, in value form.

        Raises the errors of the compiler.
        """
        if len(text) > LONGEST_TEXT:
            return self._alone(text, context)
        for template in self._templates:
            found = template.match(text)
            if found is not None and template.context == context:
                constants: Sequence[str] = found.groups()
                if template.signs is not None:
                    constants = [sign + constant for sign, constant in zip(template.signs, constants, strict=True)]
                try:  # the template ensures the right kinds
                    return template.known.plan, list(map(template.known.readable.__getitem__, constants))
                except ParsingFailed:
                    return self._alone(text, context)
        for declared in self._prologues:
            # If another PREFIX follows, the known prologue is only the beginning of this one.
            if text.startswith(declared) and not text.startswith("PREFIX", len(declared)):
                break
        else:
            declared = self._learn(prologue(text))
        skeleton, constants = fingerprint(text[len(declared) :])
        fingerprint_: Hashable = (declared, skeleton) if context is None else (declared, skeleton, context)
        for group in self._groups_by_fingerprint.get(fingerprint_, ()):
            entry = group, group.fixed(constants)
            known = self._plans.get(entry)
            if known is None or any(constants[one] != constants[other] for one, other in group.equal):
                continue
            try:
                terms = list(map(known.readable.__getitem__, group.open(constants)))
            except ParsingFailed:
                return self._alone(text, context)
            if list(map(type, terms)) == group.kinds:
                try:  # noqa: SIM105  (`suppress` takes ten times as long)
                    self._plans.move_to_end(entry)
                except KeyError:  # another thread has just evicted it
                    pass
                known.uses += 1
                if known.uses % _OFTEN == 0:
                    self._add_template(text, context, group, known, len(declared))
                return known.plan, terms
        return self._compile_new(text, context, fingerprint_, constants, len(declared))

    def _add_template(self, text: str, context: C | None, group: _TextGroup, known: _CachedPlan[T], start: int) -> None:
        """Compile a text template for a plan that is used often."""
        offered = [place for place in places(text[start:]) if place.constant in group.places]
        pattern = text_template(text, start, offered, group.groups)
        if pattern is not None:
            signs = ["-" if place.signed else "" for place in _firsts(offered, group.groups)]
            template = _TemplatePlan(pattern.fullmatch, signs if any(signs) else None, context, known)
            self._templates = (
                template,
                *(other for other in self._templates[: _TEMPLATES - 1] if other.known is not known),
            )

    def _alone(self, text: str, context: C | None) -> tuple[T, Sequence[Term]]:
        return self._compiled(text, context, {}).plan, ()

    def _compiled(self, text: str, context: C | None, parameters: Parameters) -> Compiled[T]:
        try:
            return self._compile(text, context, parameters)
        except RecursionError:
            raise LimitExceeded("The text is nested too deeply. Write it with fewer levels.") from None

    def _learn(self, declared: str) -> str:
        """Remember a prologue, since most texts start with one of a few."""
        if declared:
            self._prologues = (declared, *self._prologues[: _PROLOGUES - 1])
        return declared

    def _compile_new(
        self, text: str, context: C | None, fingerprint_: Hashable, constants: Sequence[str], start: int
    ) -> tuple[T, Sequence[Term]]:
        # Offer all places first. The compiled plan says which of them can stay open.
        offered = places(text[start:])
        compiled = self._compiled(text, context, _parameters(offered, range(len(offered)), start))
        # Only a sign of a negative number belongs to the constant. An operator could also precede a string.
        taken = {p.index for p in compiled.parameters if p.negative == offered[p.index].signed}
        remaining = [place for index, place in enumerate(offered) if index in taken]
        groups = self._groups(fingerprint_, remaining, constants)
        if groups != list(range(len(offered))):  # compile again with only the remaining places, numbered from 0
            offered = remaining
            compiled = self._compiled(text, context, _parameters(offered, groups, start))
        parameters = {parameter.index: parameter for parameter in compiled.parameters}
        try:
            kinds = [type(parameters[index].term) for index in range(len(set(groups)))]
            readable = self._constants.setdefault(compiled.names, Constants(compiled.names))
            group = _text_group(fingerprint_, offered, groups, kinds, len(constants))
            terms = [readable[constant] for constant in group.open(constants)]
        except (ParsingFailed, KeyError):
            return self._alone(text, context)
        self._store(group, constants, _CachedPlan(compiled.plan, readable))
        return compiled.plan, terms

    def _groups(self, fingerprint_: Hashable, offered: Sequence[ConstantPlace], constants: Sequence[str]) -> _Groups:
        """Number the open constants. Those that were equal in all texts with these open places share a number."""
        marks: list[Hashable] = [(place.signed, constants[place.constant]) for place in offered]
        for group in self._groups_by_fingerprint.get(fingerprint_, ()):
            if list(group.places) == [place.constant for place in offered]:
                marks = list(zip(marks, group.groups, strict=True))
        first: dict[Hashable, int] = {}
        return [first.setdefault(mark, len(first)) for mark in marks]

    def _store(self, group: _TextGroup, constants: Sequence[str], plan: _CachedPlan[T]) -> None:
        with self._changing:
            groups_here = self._groups_by_fingerprint.get(group.fingerprint, ())
            # Another thread may have added the same group meanwhile.
            alike = [other for other in groups_here if other.likeness == group.likeness]
            if alike:
                (group,) = alike
            else:
                self._groups_by_fingerprint[group.fingerprint] = (*groups_here, group)
            entry = group, group.fixed(constants)
            group.size += entry not in self._plans
            self._plans[entry] = plan
            while len(self._plans) > self._size:
                (oldest, _), _ = self._plans.popitem(last=False)
                oldest.size -= 1
                if not oldest.size:
                    self._forget(oldest)

    def _forget(self, group: _TextGroup) -> None:
        left = tuple(other for other in self._groups_by_fingerprint.pop(group.fingerprint) if other is not group)
        if left:
            self._groups_by_fingerprint[group.fingerprint] = left


def _parameters(offered: Sequence[ConstantPlace], groups: _Groups, start: int) -> Parameters:
    return {start + place.start: (start + place.end, group) for place, group in zip(offered, groups, strict=True)}


def _firsts(offered: Sequence[ConstantPlace], groups: _Groups) -> list[ConstantPlace]:
    """Return the first place of each open constant."""
    return [place for index, place in enumerate(offered) if groups.index(groups[index]) == index]


def _text_group(
    fingerprint_: Hashable, offered: Sequence[ConstantPlace], groups: _Groups, kinds: Sequence[type[Term]], count: int
) -> _TextGroup:
    """Return the group of plans in which all `offered` places are open. The text has `count` constants."""
    open_ = [place.constant for place in offered]
    firsts = _firsts(offered, groups)
    signs = ["-" if place.signed else "" for place in offered]
    equal = [
        (firsts[group].constant, place.constant)
        for place, group in zip(offered, groups, strict=True)
        if place is not firsts[group]
    ]
    select = _selecting([place.constant for place in firsts], ["-" if place.signed else "" for place in firsts])
    fixed = _selecting([constant for constant in range(count) if constant not in open_], [])
    return _TextGroup(fingerprint_, (open_, signs, groups, kinds), open_, groups, equal, select, fixed, kinds)


def _selecting(indexes: Sequence[int], signs: Sequence[str]) -> _Select:
    if any(signs):
        signed = list(zip(signs, indexes, strict=True))
        return lambda texts: tuple(sign + texts[index] for sign, index in signed)
    if len(indexes) > 1:
        return itemgetter(*indexes)
    if indexes:
        (only,) = indexes
        return lambda texts: (texts[only],)
    return lambda texts: ()
