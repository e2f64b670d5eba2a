"""The messages that set the values of a message at their device, for `edge mapping test --set`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from edge.cli.bindings_table import printable

if TYPE_CHECKING:
    from edge.mapping import Mapper, Reading, SolutionTerm

TRUTH: Final = {"on": "true", "true": "true", "1": "true", "off": "false", "false": "false", "0": "false"}
"""Ways to write a switch's value, and the boolean."""


def set_messages(mapper: Mapper, topic: str, readings: Sequence[Reading], value: str) -> list[dict[str, str]]:
    """Return the message for each of these readings that can be set, or the problem of the value."""
    from edge.mapping import CommandError

    found = []
    for reading in readings:
        setter = mapper.setter(topic, reading.observation)
        if setter is None:
            continue
        try:
            to, payload = setter[0].render(setter[1], _term(setter[0].describe(), value))
        except CommandError as error:
            found.append({"observation": reading.observation, "problem": str(error)})
        else:
            message = {"topic": to, "payload": payload.decode("utf-8", "replace")}
            found.append({"observation": reading.observation, **message})
    return found


def _term(how: Mapping[str, Any], value: str) -> SolutionTerm:
    """Return the value that `edge set` would write."""
    from edge.mapping import SolutionTerm
    from edge.mapping.bounded_numbers import bounded_number
    from edge.mapping.reading import XSD_BOOLEAN, XSD_DECIMAL, XSD_DOUBLE, XSD_STRING
    from edge.number_text import number_text

    kind = how["kind"]
    if kind == "switch" and value.lower() in TRUTH:
        return SolutionTerm(TRUTH[value.lower()], XSD_BOOLEAN)
    if kind == "choice":
        value = chosen(how["choices"], value) or value
    if kind != "number":
        return SolutionTerm(value, XSD_STRING)
    number = bounded_number(value)
    if number is None or (text := number_text(number)) is None:
        return SolutionTerm(value, XSD_STRING)  # the setter says what is wrong
    return SolutionTerm(text, XSD_DOUBLE if "e" in text else XSD_DECIMAL)


def chosen(choices: Sequence[str], value: str) -> str | None:
    """Return the choice that a person means: the case may differ. None: no choice, or several."""
    near = [value] if value in choices else [each for each in choices if each.lower() == value.lower()]
    return near[0] if len(near) == 1 else None


def show_set_messages(messages: Sequence[dict[str, str]]) -> None:
    """Print the messages, or that nothing can be set."""
    if not messages:
        click.echo("edge: no value of this message can be set; its mapping has no `set`", err=True)
    for message in messages:
        click.echo(f"\nset {printable(message['observation'])}:")
        for key, text in list(message.items())[1:]:
            click.echo(f"  {key:<12} {printable(text)}")
