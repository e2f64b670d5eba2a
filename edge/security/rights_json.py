"""Permissions of a client as JSON, and their comparison with those of the client that grants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, get_args

from edge.protocol.access import DEFAULT_GRAPH, PRIORITIES, Access, Action
from edge.protocol.errors import InvalidRequest
from edge.protocol.topics import is_filter
from edge.security.clients import Rights

_ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
_MEMBERS: Final = ("actions", "read", "write", "publish", "receive", "priority")
_MOST: Final = 100
"""Graphs or topic filters in one list."""


def to_json(rights: Rights) -> dict[str, object]:
    """Return permissions as the members that `from_json` accepts.

    Null: all graphs, or the topics that follow from the permissions for the default graph ("").
    """
    limits = {name: getattr(rights, name) for name in ("read", "write", "publish", "receive")}
    return {
        "actions": sorted(rights.actions),
        **{name: None if limit is None else sorted(limit) for name, limit in limits.items()},
        "priority": rights.priority,
    }


def from_json(found: object) -> Rights:
    """Return the permissions that a client requests. Raises `InvalidRequest`."""
    if not isinstance(found, dict) or "actions" not in found:
        raise InvalidRequest('"rights" must be an object with the list "actions", for example {"actions": ["query"]}')
    unknown = found.keys() - set(_MEMBERS)
    if unknown:
        raise InvalidRequest(f'"{min(unknown)[:100]}" is not a permission; they are {", ".join(_MEMBERS)}')
    priority = found.get("priority", "normal")
    if priority not in PRIORITIES:
        raise InvalidRequest(f'"priority" must be one of {", ".join(PRIORITIES)}')
    actions = _listed(found, "actions", f"a list of actions: {', '.join(_ACTIONS)}", lambda each: each in _ACTIONS)
    if actions is None:
        raise InvalidRequest('"actions" must be a list; without an action it is []')
    graphs = 'null (all graphs) or a list of graph IRIs; "" is the default graph'
    topics = "null or a list of topic filters, in which + is a whole level and # the last level"
    return Rights(
        frozenset(action for action in _ACTIONS if action in actions),
        _listed(found, "read", graphs, _is_graph),
        _listed(found, "write", graphs, _is_graph),
        _listed(found, "publish", topics, is_filter),
        _listed(found, "receive", topics, is_filter),
        priority,
    )


def exceeding(rights: Rights, access: Access) -> str:
    """Return which of these permissions a client with `access` does not have itself; empty: it has them all."""
    publish, receive = rights.topics()
    limits = (
        ("read the graph", rights.read, access.read),
        ("write the graph", rights.write, access.write),
        ("publish on the topic", publish, access.publish),
        ("receive the topic", receive, access.receive),
    )
    missing = [f'"{action}"' for action in sorted(rights.actions - access.actions)]
    for what, wanted, own in limits:
        if own is not None:
            missing += [f'{what} "{each or "default"}"' for each in _beyond(wanted, own)]
    return ", ".join(missing[:3])


def _beyond(wanted: frozenset[str] | None, own: frozenset[str]) -> Iterable[str]:
    return ["all"] if wanted is None else sorted(wanted - own)


def _listed(
    members: Mapping[str, object], name: str, wanted: str, accepts: Callable[[str], bool]
) -> frozenset[str] | None:
    found = members.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or len(found) > _MOST:
        raise InvalidRequest(f'"{name}" must be {wanted}; at most {_MOST}')
    for each in found:
        if not isinstance(each, str) or not accepts(each):
            raise InvalidRequest(f'"{name}" must be {wanted}; this is not: {str(each)[:100]!r}')
    return frozenset(found)


def _is_graph(iri: str) -> bool:
    from pyoxigraph import NamedNode

    try:
        # Checks the syntax of the IRI (RFC 3987). An invalid one would match no graph.
        return iri == DEFAULT_GRAPH or bool(NamedNode(iri))
    except ValueError:
        return False
