"""Options of `edge clients` for the permissions of a client, and their output."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import click

from edge.cli.exit_codes import misused
from edge.protocol.access import DEFAULT_GRAPH, PRIORITIES, Action, Priority
from edge.protocol.topics import is_filter

if TYPE_CHECKING:
    from edge.security.clients import Rights

_NONE: Final = "none"
_WORDS: Final = {"default": [DEFAULT_GRAPH], _NONE: []}
"""Names for graphs without an IRI."""

_OPTIONS: Final = (
    click.option(
        "--action",
        "actions",
        multiple=True,
        type=click.Choice([*get_args(Action), _NONE]),
        help="Action that it may use; may repeat.  [default: query, update, subscribe]",
    ),
    click.option(
        "--read",
        multiple=True,
        metavar="GRAPH",
        help='IRI of a graph it may read, "default" or "none"; may repeat.  [default: all]',
    ),
    click.option(
        "--write",
        multiple=True,
        metavar="GRAPH",
        help='IRI of a graph it may change, "default" or "none"; may repeat.  [default: all]',
    ),
    click.option(
        "--publish",
        multiple=True,
        metavar="FILTER",
        help='MQTT topics it may publish to, e.g. "kitchen/#", or "none"; may repeat.  '
        "[default: all, if it may update the default graph]",
    ),
    click.option(
        "--receive",
        multiple=True,
        metavar="FILTER",
        help='MQTT topics it may receive, or "none"; may repeat.  '
        "[default: all, if it may query or subscribe to the default graph]",
    ),
    click.option(
        "--priority",
        type=click.Choice(PRIORITIES),
        default="normal",
        show_default=True,
        help="Priority of its requests in the queues.",
    ),
)


def rights_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command. The command is called with the permissions as `rights`."""

    @functools.wraps(command)
    def with_rights(
        *,
        actions: tuple[Action | Literal["none"], ...],
        read: tuple[str, ...],
        write: tuple[str, ...],
        publish: tuple[str, ...],
        receive: tuple[str, ...],
        priority: Priority,
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> None:
        from edge.security.clients import Rights

        for option, given in (
            ("--action", actions),
            ("--read", read),
            ("--write", write),
            ("--publish", publish),
            ("--receive", receive),
        ):
            if _NONE in given and set(given) != {_NONE}:
                rest = ", ".join(f'"{word}"' for word in given if word != _NONE)
                raise misused(f'{option}: "none" and {rest} contradict each other; leave one out')
        chosen = {"actions": frozenset(action for action in actions if action != "none")} if actions else {}
        rights = Rights(
            **chosen,
            read=_graphs(read),
            write=_graphs(write),
            publish=_topics(publish),
            receive=_topics(receive),
            priority=priority,
        )
        command(rights=rights, **others)

    # Reversed, because decorators apply from the inside out and help lists the outermost option first.
    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), with_rights)


def shown(rights: Rights) -> tuple[str, ...]:
    """Return permissions as text: actions, graphs to read and change, topics to publish and receive, priority."""
    limits = (rights.read, rights.write, *rights.topics())
    listed = ("all" if limit is None else _listed(limit) for limit in limits)
    return _listed(rights.actions), *listed, rights.priority


def as_json(rights: Rights) -> dict[str, list[str] | str | None]:
    """Return permissions as JSON members; None means all."""
    publish, receive = rights.topics()
    limits = {"read": rights.read, "write": rights.write, "publish": publish, "receive": receive}
    return {
        "actions": sorted(rights.actions),
        **{name: None if limit is None else sorted(limit) for name, limit in limits.items()},
        "priority": rights.priority,
    }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name or "default" for name in sorted(names)) or _NONE


def _graphs(given: tuple[str, ...]) -> frozenset[str] | None:
    if not given:
        return None
    from pyoxigraph import NamedNode

    graphs = [graph for name in given for graph in _WORDS.get(name, [name])]
    for graph in graphs:
        try:
            if graph != DEFAULT_GRAPH:
                # Checks the syntax of the IRI (RFC 3987). An invalid one would match no graph.
                NamedNode(graph)
        except ValueError:
            raise misused(f'"{graph}" is not the IRI of a graph; write an IRI, "default" or "none"') from None
    return frozenset(graphs)


def _topics(given: tuple[str, ...]) -> frozenset[str] | None:
    if not given:
        return None
    filters = frozenset(given) - {_NONE}
    for topic_filter in filters:
        if not is_filter(topic_filter):
            raise misused(f'"{topic_filter}" is not a topic filter: + must be a whole level, # the last level')
    return filters
