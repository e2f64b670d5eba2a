"""Permissions of a client as JSON, and their comparison with those of the client that grants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, get_args

from edge.protocol.access import DEFAULT_GRAPH, PRIORITIES, Access, Action
from edge.protocol.errors import InvalidRequest
from edge.protocol.topics import covers, is_filter
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


def exceeding(rights: Rights, access: Access, root: str) -> str:
    """Return which of these permissions a client with `access` does not have itself; empty: it has them all.

    `root`: root of the topics of the MQTT gate. They are private: permissions for all topics do not include them.
    """
    if access.everything:
        return ""
    publish, receive = rights.topics()
    missing = [f'"{action}"' for action in sorted(rights.actions - access.actions)]
    if PRIORITIES.index(rights.priority) < PRIORITIES.index(access.priority):
        missing.append(f'the priority "{rights.priority}"')
    # Without an action, no request reads or writes a graph.
    if rights.actions:
        missing += [f'read the graph "{each}"' for each in _graphs_beyond(rights.read, access.read)]
    if "update" in rights.actions:
        missing += [f'write the graph "{each}"' for each in _graphs_beyond(rights.write, access.write)]
    missing += [f'publish on the topic "{each}"' for each in _topics_beyond(publish, access.publish, root)]
    missing += [f'receive the topic "{each}"' for each in _topics_beyond(receive, access.receive, root)]
    return ", ".join(missing[:3])


def _graphs_beyond(wanted: frozenset[str] | None, own: frozenset[str] | None) -> Iterable[str]:
    if own is None:
        return ()
    return ["all"] if wanted is None else [each or "default" for each in sorted(wanted - own)]


def _topics_beyond(wanted: frozenset[str] | None, own: frozenset[str] | None, root: str) -> Iterable[str]:
    if wanted is None:
        return () if own is None else ["all"]
    return [each for each in sorted(wanted) if not _has_topic(own, each, root)]


def _has_topic(own: frozenset[str] | None, wanted: str, root: str) -> bool:
    """Return whether permissions for topics include those of a filter."""
    private = _is_private(wanted, root)
    if own is None:
        return not private
    # As at the broker, a filter with a wildcard in its first level does not include private topics.
    return any(covers(given, wanted) for given in own if not private or _is_private(given, root))


def _is_private(topic_filter: str, root: str) -> bool:
    return topic_filter.startswith("$") or (bool(root) and f"{topic_filter}/".startswith(f"{root}/"))


def _listed(
    members: Mapping[str, object], name: str, wanted: str, accepts: Callable[[str], bool]
) -> frozenset[str] | None:
    found = members.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or len(found) > _MOST:
        raise InvalidRequest(f'"{name}" must be {wanted}; at most {_MOST}')
    for each in found:
        if not isinstance(each, str) or not _is_text(each) or not accepts(each):
            raise InvalidRequest(f'"{name}" must be {wanted}; this is not: {str(each)[:100]!r}')
    return frozenset(found)


def _is_graph(iri: str) -> bool:
    from pyoxigraph import NamedNode

    try:
        # Checks the syntax of the IRI (RFC 3987). An invalid one would match no graph.
        return iri == DEFAULT_GRAPH or bool(NamedNode(iri))
    except ValueError:
        return False


def _is_text(text: str) -> bool:
    """Return whether a text has no half surrogate pair, which JSON can express."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
