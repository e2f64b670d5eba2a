"""Texts of EXPLAIN, for readers who know SPARQL but not this engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

INCREMENTAL: Final = (
    "Kept up to date incrementally. A change that matches none of the patterns costs nothing. The cost of any other "
    "change depends on the affected triples, not on the size of the result or the graph."
)
PARTLY: Final = (
    "Kept up to date incrementally, but a change that matches a pattern marked with a warning costs as much as an "
    "evaluation of the whole query."
)
RE_EVALUATED: Final = (
    "Re-evaluated. A change that matches none of the patterns costs nothing. After any other change the engine "
    "evaluates the whole query, and compares the new result with the old one."
)

DIRECT: Final = "exact: the triple alone determines the added or removed result, without any lookup"
ALL: Final = "exact: every result contains this triple, so all of them are added or removed with it"
EVERYTHING: Final = "everything: the whole query is evaluated before and after the change, and the results are compared"

_SELDOM: Final = "This is harmless if such triples rarely change."
_WARNINGS: Final = {
    "SELECT": "The sub-SELECT hides the variables of this pattern. SELECT one of them (with aggregates: GROUP BY it) "
    "and use the same variable outside, or subscribe to the sub-SELECT alone.",
    "UNION": "Not every branch of the UNION binds the variables of this pattern. Use the same variables in all "
    "branches, or subscribe to each branch separately.",
}
_PATH_WARNING: Final = (
    "The alternatives of a path return each pair of ends once, so the engine must check all of them. Write them as a "
    "UNION, { ?a :p ?b } UNION { ?a :q/:r ?b }, with SELECT DISTINCT if each pair must occur once."
)
_UNTIED: Final = (
    "This pattern has no variable that is always bound outside the {clause}. Use a variable of the patterns outside, "
    "except for those in OPTIONAL."
)
_CONSTANT: Final = "This pattern has no variable, and each of several graphs may contain its triple."
_CLAUSES: Final = {
    "EXISTS": "EXISTS or NOT EXISTS",
    "SELECT": "a sub-SELECT",
    "UNION": "a UNION",
    "FROM": "a merge of several graphs",
}

ORDER_BY: Final = "ORDER BY has no effect: notifications contain added and removed rows, without an order."
GRAPH_NAMES: Final = (
    "When a named graph is created or dropped, the whole query is evaluated before and after the change."
)
GRAPH_NAMES_REEVALUATED: Final = "It is also re-evaluated when a named graph is created or dropped."
FOLLOWS_RESOURCES: Final = "It is also re-evaluated when a triple changes whose resource the last result describes."

SELECT: Final = "the columns of each solution"
BAG: Final = "the columns of each solution; equal rows are reported as often as they occur"
DISTINCT: Final = "the engine counts the occurrences of each row; it is added with the first and removed with the last"
ASK: Final = "the engine counts the solutions; subscribers are notified of the first one and after the last one"
KEEPS_COUNT: Final = "one number"
KEEPS_ROWS: Final = "each different row, with a count"
KEEPS_TRIPLES: Final = "each triple of the result, with a count"
KEEPS_RESULT: Final = "the whole result"


def summary(effects: Collection[str]) -> str:
    """Describe the cost of incremental evaluation."""
    return PARTLY if "everything" in effects else INCREMENTAL


def effect(kind: str, known: Sequence[str]) -> str:
    """Describe the evaluation after a matching triple was added or removed."""
    if kind == "direct":
        return DIRECT
    if kind == "everything":
        return EVERYTHING
    if not known:
        return ALL
    names = _list(known)
    if kind == "restricted":
        return f"restricted: results with the same {names} are evaluated before and after the change, and compared"
    return f"exact: only the results that contain this triple are searched, from its {names}"


def clause(inside: Sequence[str], *, of_path: bool) -> str:
    """Name the innermost clause because of which a pattern is not part of every result."""
    if of_path:
        return "alternatives of a path"
    return _CLAUSES.get(inside[-1], inside[-1]) if inside else ""


def warning(inside: Sequence[str], *, of_path: bool) -> str:
    """Explain why a change requires the evaluation of the whole query, and name a remedy."""
    if of_path:
        why = _PATH_WARNING
    else:
        around = [each for each in inside if each != "FROM"]
        untied = _UNTIED.format(clause=around[-1]) if around else _CONSTANT
        why = next((_WARNINGS[each] for each in _WARNINGS if each in inside), untied)
    return f"{why} {_SELDOM}"


def unconnected(groups: Sequence[str]) -> str:
    """Warn of patterns that share no variable."""
    shown = " and ".join(f"{{ {group} }}" for group in groups)
    return (
        f"{shown} share no variable: every solution of one is combined with every solution of the other, after each "
        "change. If they belong together, use the same variable in both instead of FILTER(?a = ?b)."
    )


def groups(aggregates: Sequence[str], *, concatenates: bool, having: bool) -> str:
    """Describe the update of groups."""
    text = "a group is updated by the added and removed solutions"
    if aggregates:
        text = (
            f"{_list(aggregates)}, updated by the added and removed solutions, not computed over the whole group again"
        )
    if concatenates:
        text += "; only GROUP_CONCAT is built again for each changed group"
    return f"{text}; HAVING then selects the groups" if having else text


def kept_groups(keys: bool, values: Sequence[str]) -> str:
    """Describe the state of groups in memory."""
    kept = "each group with its aggregates" if keys else "the aggregates"
    return f"{kept}, and for {_list(values)} the different values" if values else kept


def construct(triples: int) -> str:
    """Describe the effect of a CONSTRUCT template."""
    size = "1 triple" if triples == 1 else f"{triples} triples"
    return (
        f"each solution fills the template ({size}); a triple is added with the first solution that creates it, and "
        "removed with the last"
    )


def sharing(*, shared: bool, each: Sequence[str]) -> str:
    """Describe the sharing of work. `each`: patterns whose changes are evaluated for each query separately."""
    if not shared:
        return "Only subscriptions to exactly this text, with the same dataset, share one evaluation."
    text = "Queries that differ from this one only in its open constants are evaluated together with it."
    if not each:
        return text
    return (
        f"{text} But a change of {_list(each)} is evaluated for each of them separately, because not every pattern "
        "shares variables with it."
    )


def memory(kept: Sequence[str]) -> str:
    """Describe the state of all steps in memory."""
    return "; ".join(kept) if kept else "nothing of the result"


_REASONS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "LIMIT or OFFSET": (
        "LIMIT or OFFSET. The row that follows after a removed one can only be found among all rows.",
        (
            "Omit LIMIT and OFFSET and let the subscriber choose; use MIN or MAX if only the first row matters; or "
            "reduce the rows with a FILTER.",
        ),
    ),
    "DESCRIBE": (
        "DESCRIBE. Its result follows from the graph, not from the query.",
        ("Name the triples that you need: CONSTRUCT { <it> ?p ?o } WHERE { <it> ?p ?o }, or a SELECT.",),
    ),
    "NOW, RAND, UUID, STRUUID or BNODE": (
        "NOW, <urn:sepa:function:now>, RAND, UUID, STRUUID or BNODE. Its value differs in each evaluation, even if no "
        "triple changes.",
        (
            "The passing of time changes no triple and causes no notification. Select timestamps and compare them in "
            "the subscriber, or let a program write the current time into the graph and compare with that triple.",
        ),
    ),
    "EXISTS over groups": (
        "EXISTS in HAVING, or in a SELECT expression of a query with groups.",
        ("Move the EXISTS into the WHERE clause, or into a FILTER around a sub-SELECT with the GROUP BY.",),
    ),
    "REDUCED in a sub-query": ("REDUCED in a sub-SELECT.", ("Use DISTINCT, or omit REDUCED.",)),
    "SERVICE": (
        "SERVICE. The answer of another endpoint can change without a change of this graph.",
        ("Changes elsewhere cause no notification. Copy the data into this graph by updates.",),
    ),
    "a negated property set": (
        "A negated property set, !(...).",
        ("Write ?s ?p ?o FILTER(?p NOT IN (...)) instead.",),
    ),
    "a path of any length (*, + or ?)": (
        "A path of any length (*, + or ?). One additional link can change results far away.",
        (
            "If the length is bounded, write the lengths as branches: { ?a :p ?b } UNION { ?a :p/:p ?b }. Or let "
            "the publisher store the ends of the path.",
        ),
    ),
    "EXISTS over a variable that may be unbound": (
        "EXISTS or NOT EXISTS uses a variable that may be unbound outside it.",
        ("Use variables that the patterns outside always bind, not those that only an OPTIONAL binds.",),
    ),
    "MINUS inside EXISTS": ("MINUS inside EXISTS.", ("Use FILTER NOT EXISTS instead of that MINUS.",)),
    "a sub-query inside EXISTS": (
        "A sub-SELECT, or alternatives in a path, inside EXISTS.",
        ("Write the patterns directly into the EXISTS, and use UNION for alternatives.",),
    ),
    "a variable that is bound outside and inside EXISTS": (
        "BIND or VALUES inside EXISTS binds a variable that is also bound outside.",
        ("Use another name inside, and compare the two with a FILTER there.",),
    ),
    "GRAPH around a pattern that may match no triple of the graph": (
        "GRAPH around a pattern that may match no triple of that graph.",
        ("Add a triple pattern directly inside the GRAPH, outside OPTIONAL, UNION and sub-SELECT.",),
    ),
    "GRAPH with a variable in a dataset": (
        "GRAPH with a variable in a dataset (FROM, FROM NAMED, request parameters, or permissions for some graphs).",
        ("Name each graph: GRAPH <...> { }.",),
    ),
    "GRAPH with a name that is not in the dataset": (
        "GRAPH with a graph that is not in the dataset (FROM NAMED, request parameters), or that the client may not "
        "read: it has no solutions.",
        ("Use the name of a graph of the dataset, or add this one with FROM NAMED <...>.",),
    ),
    "several default graphs with many patterns": (
        "Several default graphs with many patterns: more than 256, if each pattern counts once for each graph.",
        ("Name the graph of patterns that need one only: GRAPH <...> { }.",),
    ),
    "a dataset of more than 16 default graphs": (
        "More than 16 default graphs (FROM, request parameters).",
        ("Subscribe to several queries.",),
    ),
    "the union of all graphs as the default graph": (
        "The setting engine.default_graph_as_union. A triple in several graphs counts once.",
        ("Disable the setting, and use GRAPH ?g { } for triples of named graphs.",),
    ),
    'engine.booster = "re-evaluate"': (
        'The setting engine.booster = "re-evaluate".',
        ('Set it to "delta", the default.',),
    ),
    "a triple term": ("A triple term, << >>.", ()),
}


def why_reevaluated(reason: str) -> tuple[str, tuple[str, ...]]:
    """Return a reason in plain words, and possible rewrites of the query."""
    return _REASONS.get(reason, (f"{reason[:1].upper()}{reason[1:]}. Incremental evaluation does not support it.", ()))


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
