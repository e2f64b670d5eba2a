"""What EXPLAIN says, in words for people who know SPARQL and not this engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

INCREMENTAL: Final = (
    "Kept up to date incrementally. A change that matches none of the patterns costs nothing; one that does costs what "
    "it touches, not what the result or the graph holds."
)
PARTLY: Final = (
    "Kept up to date incrementally, but a change that matches a pattern marked with a warning costs as much as "
    "evaluating the whole query."
)
RE_EVALUATED: Final = (
    "Evaluated anew. A change that matches none of the patterns costs nothing; any other evaluates the whole query, "
    "and the new result is compared with the old one."
)

DIRECT: Final = "exact: the triple alone decides which result comes or goes, nothing else is looked up"
ALL: Final = "exact: every result contains this triple, so all of them come and go with it"
EVERYTHING: Final = "everything: the whole query is evaluated, before and after the change, and compared"

_SELDOM: Final = "Harmless where such triples seldom change."
_WARNINGS: Final = {
    "SELECT": "The sub-SELECT hides what the changed triple is about. SELECT one of this pattern's variables in it "
    "(with aggregates: GROUP BY it) and use the same variable outside, or subscribe to the sub-SELECT by itself.",
    "UNION": "Not every branch of the UNION binds the variables of this pattern. Use the same variables in all "
    "branches, or subscribe to each branch by itself.",
}
_PATH_WARNING: Final = (
    "The alternatives of a path give each pair of ends once, so it is not enough to look at one way. Write them as a "
    "UNION, { ?a :p ?b } UNION { ?a :q/:r ?b }, with SELECT DISTINCT where each pair is wanted once."
)
_UNTIED: Final = (
    "This pattern has no variable that is certain to be bound outside the {clause}. Let it share one with the patterns "
    "outside, other than those in OPTIONAL."
)
_CLAUSES: Final = {"EXISTS": "EXISTS or NOT EXISTS", "SELECT": "a sub-SELECT", "UNION": "a UNION"}

ORDER_BY: Final = "ORDER BY has no effect: notifications say what was added and removed, without an order."
GRAPH_NAMES: Final = "When a named graph is created or dropped, the whole query is evaluated, before and after."
GRAPH_NAMES_ANEW: Final = "It is evaluated anew also when a named graph is created or dropped."
FOLLOWS_RESOURCES: Final = (
    "Besides these patterns, it is evaluated anew when a triple of a resource changes that the last result describes."
)

SELECT: Final = "the columns of each solution"
BAG: Final = "the columns of each solution; equal rows are told as often as they occur"
DISTINCT: Final = "how often each row occurs is counted; a row comes with its first occurrence and goes with its last"
ASK: Final = "the solutions are counted; subscribers are told when there is a first one, or none any more"
KEEPS_COUNT: Final = "one number"
KEEPS_ROWS: Final = "each different row, with a count"
KEEPS_TRIPLES: Final = "each triple of the result, with a count"
KEEPS_RESULT: Final = "the whole result"


def summary(effects: Collection[str]) -> str:
    """What a query that is kept up to date incrementally costs."""
    return PARTLY if "everything" in effects else INCREMENTAL


def effect(kind: str, known: Sequence[str]) -> str:
    """What is looked at when a matching triple comes or goes."""
    if kind == "direct":
        return DIRECT
    if kind == "everything":
        return EVERYTHING
    if not known:
        return ALL
    names = _list(known)
    if kind == "restricted":
        return f"restricted: results with the same {names} are evaluated before and after the change, and compared"
    return f"exact: only the results that contain this triple are looked for, from its {names}"


def clause(inside: Sequence[str], *, of_path: bool) -> str:
    """The clause that a pattern is in, the innermost that says why it is not simply part of every result."""
    if of_path:
        return "alternatives of a path"
    return _CLAUSES.get(inside[-1], inside[-1]) if inside else ""


def warning(inside: Sequence[str], *, of_path: bool) -> str:
    """Why a change of a pattern means that everything is evaluated, and what to do about it."""
    if of_path:
        why = _PATH_WARNING
    else:
        why = next((_WARNINGS[each] for each in _WARNINGS if each in inside), _UNTIED.format(clause=inside[-1]))
    return f"{why} {_SELDOM}"


def apart(groups: Sequence[str]) -> str:
    """Patterns that share no variable."""
    shown = " and ".join(f"{{ {group} }}" for group in groups)
    return (
        f"{shown} share no variable: every solution of the one is combined with every solution of the other, also when "
        "one changes. Where they belong together, write the same variable in both instead of FILTER(?a = ?b)."
    )


def groups(aggregates: Sequence[str], *, concatenates: bool, having: bool) -> str:
    """What happens to groups."""
    text = "a group is moved by the solutions that come and go"
    if aggregates:
        text = f"{_list(aggregates)}, moved by the solutions that come and go, not computed over the whole group again"
    if concatenates:
        text += "; only GROUP_CONCAT is put together anew for each group that changes"
    return f"{text}; HAVING then decides which groups are shown" if having else text


def kept_groups(keys: bool, values: Sequence[str]) -> str:
    """What is kept of groups."""
    kept = "each group with its aggregates" if keys else "the aggregates"
    return f"{kept}, and for {_list(values)} the different values" if values else kept


def construct(triples: int) -> str:
    """What happens to solutions of a CONSTRUCT."""
    size = "1 triple" if triples == 1 else f"{triples} triples"
    return (
        f"each solution fills the template ({size}); a triple comes with the first solution that makes it and goes "
        "with the last"
    )


def sharing(*, shared: bool, each: Sequence[str]) -> str:
    """With whom the work is shared. `each`: patterns whose changes are evaluated for each query by itself."""
    if not shared:
        return "Only subscriptions to this very text, with the same dataset, share one evaluation."
    text = "Queries that differ from this one only in its open constants are evaluated together with it."
    if not each:
        return text
    return (
        f"{text} But a change of {_list(each)} is evaluated for each of them by itself: not every pattern shares "
        "variables with it."
    )


def memory(kept: Sequence[str]) -> str:
    """What is kept for all steps."""
    return "; ".join(kept) if kept else "nothing of the result"


_REASONS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "LIMIT or OFFSET": (
        "LIMIT or OFFSET. Which row moves up when another goes can only be told from all rows.",
        (
            "Leave LIMIT and OFFSET out and let the subscriber pick; use MIN or MAX where only the first is wanted; or "
            "keep few rows with a FILTER.",
        ),
    ),
    "DESCRIBE": (
        "DESCRIBE. What it shows follows from the graph, not from the query.",
        ("Say which triples you want: CONSTRUCT { <it> ?p ?o } WHERE { <it> ?p ?o }, or a SELECT.",),
    ),
    "NOW, RAND, UUID, STRUUID or BNODE": (
        "NOW, <urn:sepa:function:now>, RAND, UUID, STRUUID or BNODE. Its value is another one at each evaluation, also "
        "where no triple changes.",
        (
            "Time that passes changes no triple and so notifies nobody. Select the time stamps and compare them in the "
            "subscriber, or let a program write the current time into the graph and compare with that triple.",
        ),
    ),
    "EXISTS over groups": (
        "EXISTS in HAVING, or in a SELECT expression of a query with groups.",
        ("Move the EXISTS into the WHERE clause, or into a FILTER around a sub-SELECT that does the grouping.",),
    ),
    "REDUCED in a sub-query": ("REDUCED in a sub-SELECT.", ("Write DISTINCT, or leave REDUCED out.",)),
    "SERVICE": (
        "SERVICE. What another endpoint answers can change without this graph changing.",
        ("Changes elsewhere notify nobody. Copy what you need into this graph by updates.",),
    ),
    "a negated property set": (
        "A negated property set, !(...).",
        ("Write ?s ?p ?o FILTER(?p NOT IN (...)) instead.",),
    ),
    "a path of any length (*, + or ?)": (
        "A path of any length (*, + or ?). One link more can change what is reached far away.",
        (
            "Where the length is bounded, write the lengths as branches: { ?a :p ?b } UNION { ?a :p/:p ?b }. Or let "
            "the publisher store what is reached.",
        ),
    ),
    "EXISTS over a variable that may be unbound": (
        "EXISTS or NOT EXISTS uses a variable that may be unbound outside it.",
        ("Use variables there that the patterns outside always bind, not those that only an OPTIONAL binds.",),
    ),
    "MINUS inside EXISTS": ("MINUS inside EXISTS.", ("Write FILTER NOT EXISTS instead of that MINUS.",)),
    "a sub-query inside EXISTS": (
        "A sub-SELECT, or alternatives in a path, inside EXISTS.",
        ("Write the patterns into the EXISTS themselves, and UNION for alternatives.",),
    ),
    "a variable that is bound outside and inside EXISTS": (
        "BIND or VALUES inside EXISTS binds a variable that is bound outside, too.",
        ("Give it another name inside, and compare the two with a FILTER there.",),
    ),
    "GRAPH around a pattern that may match no triple of the graph": (
        "GRAPH around something that need not match any triple of that graph.",
        ("Put a triple pattern directly into the GRAPH, outside OPTIONAL, UNION and sub-SELECT.",),
    ),
    "a dataset of several graphs": (
        "A dataset of several graphs, or GRAPH beside a dataset (FROM, FROM NAMED, or parameters of the request).",
        ("Name one default graph alone, or none, and say GRAPH <...> { } in the query.",),
    ),
    "the union of all graphs as the default graph": (
        "The setting engine.default_graph_as_union. A triple may be in several graphs and yet counts once.",
        ("Switch the setting off and say GRAPH ?g { } where triples of named graphs are meant.",),
    ),
    'engine.booster = "re-evaluate"': (
        'The setting engine.booster = "re-evaluate".',
        ('Set it to "delta", the default.',),
    ),
    "a triple term": ("A triple term, << >>.", ()),
}


def why_evaluated_anew(reason: str) -> tuple[str, tuple[str, ...]]:
    """A reason in plain words, and what could be written otherwise."""
    return _REASONS.get(reason, (f"{reason[:1].upper()}{reason[1:]}. There is no incremental rule for it.", ()))


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
