"""Plans by the shape of their text: a text that differs from one seen before in nothing but constants is not parsed.

A plan leaves some constants open. It serves every text of its shape that has the same constants everywhere else, and
at the open places constants of the same kinds. What has been the same constant in all texts so far, the subject of a
DELETE and of its WHERE, is one constant to the plan. A text that no plan serves, or whose constants cannot be read, is
compiled for itself, so that it is judged and refused exactly as if there were no plans.
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

from edge.engine.sparql.algebra import Parameter
from edge.engine.sparql.constants import Constants
from edge.engine.sparql.cursor import Parameters
from edge.engine.sparql.fingerprint import ConstantPlace, fingerprint, places, prologue
from edge.engine.sparql.terms_text import Names
from edge.engine.sparql.text_template import text_template
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term

T = TypeVar("T")
C = TypeVar("C", bound=Hashable)

LONGEST_TEXT: Final = 16_384
"""Longer texts are data, not templates: what was made of them is not kept, in characters."""

_MOULDS: Final = 4
"""Moulds that a text is tried with."""
_OFTEN: Final = 32
"""Texts after which a plan gets a mould: it takes a millisecond to make."""

_PROLOGUES: Final = 8
"""Prologues that a text is compared with."""


@dataclass(frozen=True, slots=True)
class Compiled(Generic[T]):
    """A plan, the constants that it leaves open, and the declarations under which these are read."""

    plan: T
    parameters: Collection[Parameter]
    names: Names


Compile = Callable[[str, C | None, Parameters], Compiled[T]]
"""Compiles a text in a context. It may leave those constants open that it is told. Raises what is wrong with a text."""

_Select = Callable[[Sequence[str]], Sequence[str]]

_Groups = Sequence[int]
"""For each open place which constant stands there, numbered from 0 in order: equal ones are one."""


@dataclass(eq=False, slots=True)
class _TextGroup:
    """The plans of one shape that leave the same constants open, for the same kinds of terms."""

    fingerprint: Hashable
    likeness: tuple[object, ...]
    """Which constants, with which signs, of which kinds: two families of a shape are never alike."""
    places: Sequence[int]
    """Which constants are open."""
    groups: _Groups
    equal: Sequence[tuple[int, int]]
    """Of a text's constants those that must be equal."""
    open: _Select
    """Of a text's constants those that are open, each once, numbers with their signs."""
    fixed: _Select
    """All others."""
    kinds: Sequence[type[Term]]
    size: int = 0
    """How many plans."""


@dataclass(eq=False, slots=True)
class _Known(Generic[T]):
    """A plan that is kept."""

    plan: T
    readable: Constants
    """How its open constants are read."""
    uses: int = 0


class _Cast(NamedTuple, Generic[T]):
    """A plan with a mould for its texts."""

    match: Callable[[str], re.Match[str] | None]
    signs: Sequence[str] | None
    """What stands before each open constant and belongs to it; None: nothing."""
    context: Hashable
    known: _Known[T]


class PlanCache(Generic[C, T]):
    """The plans of texts, compiled on first sight. Any thread may ask."""

    def __init__(self, compile_: Compile[C, T], kept: int) -> None:
        """`kept`: plans, at the most. Those go first that nobody has asked for longest."""
        self._compile = compile_
        self._kept = kept
        self._families: dict[Hashable, tuple[_TextGroup, ...]] = {}
        self._plans: OrderedDict[tuple[_TextGroup, Sequence[str]], _Known[T]] = OrderedDict()
        self._constants: WeakValueDictionary[Names, Constants] = WeakValueDictionary()
        self._prologues: tuple[str, ...] = ()
        self._casts: tuple[_Cast[T], ...] = ()
        self._changing = threading.Lock()

    def __len__(self) -> int:
        """How many plans are kept."""
        return len(self._plans)

    def get(self, text: str, context: C | None = None) -> tuple[T, Sequence[Term]]:
        """The plan of a text in a context, and its constants: by `Parameter.index`, with their signs, in value form.

        Raises what the compiler raises.
        """
        if len(text) > LONGEST_TEXT:
            return self._alone(text, context)
        for cast in self._casts:
            found = cast.match(text)
            if found is not None and cast.context == context:
                constants: Sequence[str] = found.groups()
                if cast.signs is not None:
                    constants = [sign + constant for sign, constant in zip(cast.signs, constants, strict=True)]
                try:  # the mould sees to it that they are of the right kinds
                    return cast.known.plan, list(map(cast.known.readable.__getitem__, constants))
                except ParsingFailed:
                    return self._alone(text, context)
        for declared in self._prologues:
            if text.startswith(declared) and not text.startswith("PREFIX", len(declared)):
                break
        else:
            declared = self._learn(prologue(text))
        skeleton, constants = fingerprint(text[len(declared) :])
        shape_: Hashable = (declared, skeleton) if context is None else (declared, skeleton, context)
        for family in self._families.get(shape_, ()):
            entry = family, family.fixed(constants)
            known = self._plans.get(entry)
            if known is None or any(constants[one] != constants[other] for one, other in family.equal):
                continue
            try:
                terms = list(map(known.readable.__getitem__, family.open(constants)))
            except ParsingFailed:
                return self._alone(text, context)
            if list(map(type, terms)) == family.kinds:
                try:  # noqa: SIM105  (`suppress` takes ten times as long)
                    self._plans.move_to_end(entry)
                except KeyError:  # another thread has just thrown it out
                    pass
                known.uses += 1
                if known.uses % _OFTEN == 0:
                    self._cast(text, context, family, known, len(declared))
                return known.plan, terms
        return self._anew(text, context, shape_, constants, len(declared))

    def _cast(self, text: str, context: C | None, family: _TextGroup, known: _Known[T], start: int) -> None:
        """Make a mould for the texts of a plan that is asked for often."""
        offered = [place for place in places(text[start:]) if place.constant in family.places]
        pattern = text_template(text, start, offered, family.groups)
        if pattern is not None:
            signs = ["-" if place.signed else "" for place in _firsts(offered, family.groups)]
            cast = _Cast(pattern.fullmatch, signs if any(signs) else None, context, known)
            self._casts = (cast, *(other for other in self._casts[: _MOULDS - 1] if other.known is not known))

    def _alone(self, text: str, context: C | None) -> tuple[T, Sequence[Term]]:
        return self._compiled(text, context, {}).plan, ()

    def _compiled(self, text: str, context: C | None, parameters: Parameters) -> Compiled[T]:
        try:
            return self._compile(text, context, parameters)
        except RecursionError:
            raise ParsingFailed("The text is nested too deep; write it with fewer levels") from None

    def _learn(self, declared: str) -> str:
        """Remember a prologue: most texts begin with one of a few."""
        if declared:
            self._prologues = (declared, *self._prologues[: _PROLOGUES - 1])
        return declared

    def _anew(
        self, text: str, context: C | None, shape_: Hashable, constants: Sequence[str], start: int
    ) -> tuple[T, Sequence[Term]]:
        offered = places(text[start:])
        compiled = self._compiled(text, context, _parameters(offered, range(len(offered)), start))
        # A sign belongs to a negative number; it is no operator that could as well stand before a string.
        taken = {p.index for p in compiled.parameters if p.negative == offered[p.index].signed}
        remaining = [place for index, place in enumerate(offered) if index in taken]
        groups = self._groups(shape_, remaining, constants)
        if groups != list(range(len(offered))):  # again with those alone, numbered from 0
            offered = remaining
            compiled = self._compiled(text, context, _parameters(offered, groups, start))
        parameters = {parameter.index: parameter for parameter in compiled.parameters}
        try:
            kinds = [type(parameters[index].term) for index in range(len(set(groups)))]
            readable = self._constants.setdefault(compiled.names, Constants(compiled.names))
            family = _family(shape_, offered, groups, kinds, len(constants))
            terms = [readable[constant] for constant in family.open(constants)]
        except (ParsingFailed, KeyError):
            return self._alone(text, context)
        self._keep(family, constants, _Known(compiled.plan, readable))
        return compiled.plan, terms

    def _groups(self, shape_: Hashable, offered: Sequence[ConstantPlace], constants: Sequence[str]) -> _Groups:
        """Which open constants are the same in a text, and were in all of its shape that have these places open."""
        marks: list[Hashable] = [(place.signed, constants[place.constant]) for place in offered]
        for family in self._families.get(shape_, ()):
            if list(family.places) == [place.constant for place in offered]:
                marks = list(zip(marks, family.groups, strict=True))
        first: dict[Hashable, int] = {}
        return [first.setdefault(mark, len(first)) for mark in marks]

    def _keep(self, family: _TextGroup, constants: Sequence[str], plan: _Known[T]) -> None:
        with self._changing:
            families = self._families.get(family.fingerprint, ())
            alike = [other for other in families if other.likeness == family.likeness]
            if alike:
                (family,) = alike
            else:
                self._families[family.fingerprint] = (*families, family)
            entry = family, family.fixed(constants)
            family.size += entry not in self._plans
            self._plans[entry] = plan
            while len(self._plans) > self._kept:
                (oldest, _), _ = self._plans.popitem(last=False)
                oldest.size -= 1
                if not oldest.size:
                    self._forget(oldest)

    def _forget(self, family: _TextGroup) -> None:
        left = tuple(other for other in self._families.pop(family.fingerprint) if other is not family)
        if left:
            self._families[family.fingerprint] = left


def _parameters(offered: Sequence[ConstantPlace], groups: _Groups, start: int) -> Parameters:
    return {start + place.start: (start + place.end, group) for place, group in zip(offered, groups, strict=True)}


def _firsts(offered: Sequence[ConstantPlace], groups: _Groups) -> list[ConstantPlace]:
    """The first place of each open constant."""
    return [place for index, place in enumerate(offered) if groups.index(groups[index]) == index]


def _family(
    shape_: Hashable, offered: Sequence[ConstantPlace], groups: _Groups, kinds: Sequence[type[Term]], count: int
) -> _TextGroup:
    """The family of a plan that leaves all places open that were offered. The text has `count` constants."""
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
    return _TextGroup(shape_, (open_, signs, groups, kinds), open_, groups, equal, select, fixed, kinds)


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
