"""Forced bindings (SEPA paper, section 5.3): terms that replace variables before the evaluation.

The engine substitutes them in the algebra, as parameters of the plan. So it compiles a text once for all values of the
same kinds, and a value cannot inject SPARQL syntax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

import pyoxigraph as ox

from edge.engine.store.terms import canonical
from edge.protocol.errors import UpdateFailed
from edge.protocol.results import Term
from edge.sparql.algebra import Constant, Extend, Group, Parameter, Project, Reference, Values, Variable

T = TypeVar("T")

Forced = Mapping[Variable, Parameter]
"""Variables that a request binds, with the parameters that stand for their values."""

Kinds = tuple[tuple[str, type[Term]], ...]
"""Names of the variables that a request binds, with the kinds of the terms."""


_NODE: Final = ox.NamedNode("urn:x-edge:some")
_SOME: Final[Mapping[type[Term], Term]] = {
    type(term): term for term in (_NODE, ox.BlankNode("some"), ox.Literal("some"), ox.Triple(_NODE, _NODE, _NODE))
}
"""A term of each kind."""


def kinds(bindings: Mapping[str, Term]) -> Kinds:
    """Return the properties of forced bindings on which a plan depends."""
    return tuple([(name, type(term)) for name, term in bindings.items()])


def parameters(of: Kinds) -> dict[Variable, Parameter]:
    """Return the parameters of forced bindings. Their indexes count from the end: the first is the last constant."""
    return {Variable(name): Parameter(-1 - n, False, _SOME[kind]) for n, (name, kind) in enumerate(of)}


def with_values(constants: Sequence[Term], bindings: Mapping[str, Term]) -> Sequence[Term]:
    """Return the constants of a text, followed by the values of the forced bindings in value form."""
    if not bindings:
        return constants
    # Most values are IRIs, which have one form only.
    found = list(constants)
    for term in reversed([*bindings.values()]):
        found.append(term if type(term) is ox.NamedNode else canonical(term))  # noqa: PERF401  a comprehension is a call
    return found


def bound(part: T, forced: Forced) -> T:
    """Substitute parameters for the forced variables in a part of the algebra. May raise `UpdateFailed`."""
    return _bound(part, forced) if forced else part


def _bound(part: Any, forced: Forced) -> Any:  # noqa: ANN401  (any part of the algebra)
    if isinstance(part, Variable):
        return forced.get(part, part)
    if isinstance(part, Reference):
        return Constant(forced[part.variable]) if part.variable in forced else part
    if isinstance(part, tuple):
        return tuple([_bound(item, forced) for item in part])
    if not is_dataclass(part) or isinstance(part, Parameter | type):
        return part
    if isinstance(part, Project):
        kept = tuple(variable for variable in part.variables if variable not in forced)
        return Project(_bound(part.pattern, forced), kept)
    for variable in _assigned(part):
        if variable in forced:
            raise UpdateFailed(
                f"The forced bindings do not fit the WHERE clause: it assigns a value to ?{variable.name}"
            )
    return replace(part, **{field.name: _bound(getattr(part, field.name), forced) for field in fields(part)})


def _assigned(part: object) -> Sequence[Variable]:
    """Return the variables to which a node assigns values."""
    if isinstance(part, Extend):
        return (part.variable,)
    if isinstance(part, Values):
        return part.variables
    return part.keys if isinstance(part, Group) else ()
