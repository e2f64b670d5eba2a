"""The options of `edge clients` that say what a client may do, and how that is shown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import click

from edge.cli.failures import misused
from edge.protocol.access import DEFAULT_GRAPH, PRIORITIES, Action, Priority
from edge.protocol.topics import is_filter

if TYPE_CHECKING:
    from edge.security.clients import Rights

_NONE: Final = "none"
_WORDS: Final = {"default": [DEFAULT_GRAPH], _NONE: []}
"""What stands for graphs that have no IRI."""

_OPTIONS: Final = (
    click.option(
        "--action",
        "actions",
        multiple=True,
        type=click.Choice([*get_args(Action), _NONE]),
        help="What it may do; may repeat.  [default: query, update, subscribe]",
    ),
    click.option(
        "--read",
        multiple=True,
        metavar="GRAPH",
        help='IRI of a graph it may see, "default" or "none"; may repeat.  [default: all]',
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
        help='MQTT topics it may hear, or "none"; may repeat.  '
        "[default: all, if it may query or subscribe to the default graph]",
    ),
    click.option(
        "--priority",
        type=click.Choice(PRIORITIES),
        default="normal",
        show_default=True,
        help="Whether what it asks for goes before what others wait for, or after it.",
    ),
)


def rights_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it is called with what they say as `rights`."""

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

    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), with_rights)


def shown(rights: Rights) -> tuple[str, ...]:
    """What a client may do, sees, changes, publishes to and hears, and its priority, as text."""
    limits = (rights.read, rights.write, *rights.topics())
    listed = ("all" if limit is None else _listed(limit) for limit in limits)
    return _listed(rights.actions), *listed, rights.priority


def as_json(rights: Rights) -> dict[str, list[str] | str | None]:
    """The same for programs; None is all."""
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
                NamedNode(graph)
        except ValueError:
            raise misused(f'"{graph}" is no IRI of a graph; write one, "default" or "none"') from None
    return frozenset(graphs)


def _topics(given: tuple[str, ...]) -> frozenset[str] | None:
    if not given:
        return None
    filters = frozenset(given) - {_NONE}
    for topic_filter in filters:
        if not is_filter(topic_filter):
            raise misused(f'"{topic_filter}" is no topic filter; + stands for a whole level, # for the last ones')
    return filters
