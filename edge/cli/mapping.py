"""`edge mapping`: check mapping files, test them with a message, and print their schema."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge.cli.bindings_table import printable
from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.desired_messages import set_messages, show_set_messages
from edge.cli.exit_codes import REFUSED, USAGE, misused, refused
from edge.cli.source import read_payload
from edge.command_line import PAYLOAD

if TYPE_CHECKING:
    from edge.config import Settings
    from edge.mapping import Mapper, MappingPack, MessageExplanation, SolutionTerm


@click.group()
def mapping() -> None:
    """Check, test and describe mapping files."""


@mapping.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def check(files: tuple[Path, ...]) -> None:
    """Check mapping files. Prints a line for each problem, with exit code 2; warnings do not change the exit code."""
    from edge.mapping import MappingError
    from edge.mapping_files import load_file

    faulty = False
    for file in files:
        try:
            pack = load_file(file)
        except MappingError as error:
            faulty = True
            for fault in error.faults:
                click.echo(f"edge: {fault}", err=True)
        except OSError as error:
            faulty = True
            click.echo(f"edge: {file} cannot be read: {error.strerror or error}", err=True)
        else:
            for warning in pack.warnings:
                click.echo(f"edge: warning: {warning}", err=True)
            others = ((pack.actuators, "actuator"), (pack.ports, "serial port"), (pack.devices, "Modbus device"))
            counts = [_counted(len(found), what) for found, what in others if found]
            if pack.mappings or not counts:
                counts.insert(0, _counted(len(pack.mappings), "mapping"))
            click.echo(f"{file}: good, {', '.join(counts)}")
    if faulty:
        sys.exit(USAGE)


@mapping.command(
    epilog="""\b
    Exit codes:
      0  mapped, every value is valid
      1  no mapping matches, the message has no value, or a value or --set is refused
      2  wrong command line, settings or mapping file
    """
)
@click.argument("topic")
@click.argument("payload", type=PAYLOAD)
@click.option(
    "-f",
    "--file",
    "own",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Test this mapping file and the packs, instead of the gateway's own files and the packs.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.option("--hex", "as_hex", is_flag=True, help="PAYLOAD is hexadecimal: bytes, for example from a serial port.")
@click.option(
    "--actuator",
    is_flag=True,
    help="TOPIC is the name of an actuator, PAYLOAD a solution of its query: show the messages it sends.",
)
@click.option(
    "--set",
    "desired",
    metavar="VALUE",
    help="Also show the messages that set the values of this message, which have `set`, to VALUE.",
)
@config_option
@data_dir_of_gateway
def test(
    topic: str,
    payload: str,
    own: Path | None,
    as_json: bool,
    as_hex: bool,
    actuator: bool,
    desired: str | None,
    file: Path | None,
    data_dir: Path | None,
) -> None:
    """Show the mapping that matches a message, and the resulting observations. Nothing is sent.

    If no mapping matches, standard output has a mapping to start from, and all else is on standard error.

    PAYLOAD is the payload itself, @FILE a file that contains it, - standard input. A solution is a JSON object of
    variables and their values; write an IRI as "<http://...>".

    \b
    edge mapping test zigbee2mqtt/kitchen '{"temperature": 21.5}'
    edge mapping test greenhouse/7 @payload.json --file greenhouse.toml
    edge mapping test serial/meter '01 00 D7' --hex
    edge mapping test zigbee2mqtt/lamp '{"state": "OFF"}' --set on
    edge mapping test --actuator lamps '{"id": "kitchen", "dimming": 40}'
    """
    from edge.mapping import explain, to_json

    mapper = _mapper(load_settings(file, data_dir).settings, own)
    if actuator:
        _test_actuator(mapper, topic, read_payload(payload), as_json=as_json)
        return
    given = read_payload(payload)
    explanation = explain(mapper, topic, _from_hex(given) if as_hex else given, datetime.now(UTC))
    messages = None if desired is None else set_messages(mapper, topic, explanation.outcome.readings, desired)
    if as_json:
        found = to_json(explanation) | ({} if messages is None else {"set": messages})
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        _show(explanation)
        if messages is not None:
            show_set_messages(messages)
    outcome = explanation.outcome
    # An ignored message is as its author wants it, and an empty payload clears a retained message.
    nothing = not (outcome.readings or outcome.ignored) and payload != ""
    unset = messages is not None and (not messages or any("problem" in each for each in messages))
    if not outcome.matched or outcome.problems or nothing or unset:
        sys.exit(REFUSED)


@mapping.command(
    epilog="""\b
    Exit codes:
      0  printed, or saved
      1  the message has no value, a mapping or a file of that name exists, or the directory cannot be written
      2  wrong command line or settings
    """
)
@click.argument("topic")
@click.argument("payload", type=PAYLOAD)
@click.option("--save", is_flag=True, help="Write it into the directory of the mapping files, from where it applies.")
@click.option("--hex", "as_hex", is_flag=True, help="PAYLOAD is hexadecimal: bytes, for example from a serial port.")
@config_option
@data_dir_of_gateway
def new(topic: str, payload: str, save: bool, as_hex: bool, file: Path | None, data_dir: Path | None) -> None:
    """Print a mapping for messages like this one, and on standard error the observations of this message.

    The name of a device in the topic, members of equal form and the names of items become captures. Times and scales
    are recognised, and metadata is left out. Units are guesses by the names of the values: check them. PAYLOAD is as
    for `mapping test`.

    \b
    edge mapping new greenhouse/bed1/state '{"temperature": 21.5}' > greenhouse.toml
    edge mapping new greenhouse/bed1/state @payload.json --save
    """
    from edge.mapping import Mapper, load_pack, members, suggest

    given = read_payload(payload)
    message = _from_hex(given) if as_hex else given
    text = suggest(topic, message)
    if text is None:
        raise misused("TOPIC must be the name of one topic, of 1 to 65535 characters, without + and #")
    mapped = Mapper([load_pack(text, "new")]).map(topic, message, datetime.now(UTC))
    if not mapped.readings:
        raise refused("this message has no value; give one that has the values to map")
    if save:
        settings = load_settings(file, data_dir).settings
        if by := _mapper(settings, None).map(topic, message).mappings:
            raise refused(f"{', '.join(by)} maps this message already; see `edge mapping test`")
        _save(text, settings.mappings_dir, topic)
    else:
        click.echo(text, nl=False)
    for reading in mapped.readings:
        click.echo("", err=True)
        for key, value in members(reading).items():
            click.echo(f"  {key:<12} {printable(value)}", err=True)
    for problem in mapped.problems:
        click.echo(f"! {printable(str(problem))}", err=True)


def _save(text: str, directory: Path, topic: str) -> None:
    """Write a new mapping file; exit code 1 if there is one of that name."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", topic).strip("-")[:64] or "new"
    path = directory / f"{name}.toml"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        click.echo(f"edge: {path} exists; print the mapping without --save, and add it to that file", err=True)
        sys.exit(REFUSED)
    except OSError as error:
        click.echo(f"edge: {error.filename or path} cannot be written: {error.strerror}", err=True)
        sys.exit(REFUSED)
    click.echo(path)


@mapping.command()
@click.argument("text", required=False)
@click.option(
    "--all", "every", is_flag=True, help="All units of QUDT 1.1 and 2, not only those that payloads can name."
)
def units(text: str | None, every: bool) -> None:
    """List units: symbol, codes, IRI. TEXT: only units with this text in one of them.

    In mapping files, `unit` is a code, a symbol or an IRI of this list, or an IRI of another vocabulary.

    \b
    edge mapping units
    edge mapping units pascal
    """
    from edge.mapping import all_units

    # A text is searched in all units: whoever looks for a unit does not know whether it is common.
    found = [unit for unit in all_units() if every or text or unit.common]
    if text:
        word = text.casefold()
        names = {unit: [each.casefold() for each in (unit.symbol, *unit.codes, unit.name)] for unit in found}
        found = [unit for unit in found if any(word in name for name in names[unit])]
        found.sort(key=lambda unit: word not in names[unit])  # the units that it names come first
    if not found:
        click.echo(f"edge: no unit contains {printable(text or '')}", err=True)
        sys.exit(REFUSED)
    for unit in found:
        click.echo(f"{unit.symbol or '-':<12} {' '.join(unit.codes) or '-':<32} {unit.iri}")


@mapping.command()
def schema() -> None:
    """Print the JSON Schema of mapping files, for editors."""
    from edge.mapping import mapping_schema

    click.echo(json.dumps(mapping_schema(), indent=2))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _test_actuator(mapper: Mapper, name: str, solution: bytes, *, as_json: bool) -> None:
    """Print the messages of an actuator for a new solution, and for a removed one."""
    from edge.mapping import CommandError

    found = [each for each in mapper.actuators if name in (each.name, each.name.partition("/")[2])]
    if len(found) != 1:
        known = ", ".join(each.name for each in mapper.actuators) or "none"
        raise misused(f'{"more than one" if found else "no"} actuator is called "{name}"; there are: {known}')
    actuator = found[0]
    row = actuator.solution(_terms(solution))
    messages: dict[str, dict[str, object]] = {}
    for when, template in (("added", actuator.added), ("removed", actuator.removed)):
        if template is None:
            continue
        try:
            command = template.render(row)
        except CommandError as error:
            messages[when] = {"problem": str(error)}
        else:
            payload = command.payload.hex(" ") if template.hex else command.payload.decode("utf-8", "replace")
            messages[when] = {
                "topic": command.topic,
                "payload": payload,
                "qos": command.qos,
                "retain": command.retain,
            }
    if as_json:
        click.echo(json.dumps({"actuator": actuator.name, **messages}, ensure_ascii=False, indent=2))
    else:
        click.echo(f"{actuator.name} ({actuator.added.topic.text})")
        for when, message in messages.items():
            click.echo(f"\n{when}:")
            click.echo("\n".join(f"  {key:<8} {printable(str(value))}" for key, value in message.items()))
    if any("problem" in message for message in messages.values()):
        sys.exit(REFUSED)


def _terms(solution: bytes) -> dict[str, SolutionTerm]:
    """Return the terms of a solution from a JSON object.

    Texts, numbers and booleans become literals, texts in angle brackets become IRIs. null means unbound.
    """
    from edge.mapping import SolutionTerm
    from edge.mapping.reading import XSD_BOOLEAN, XSD_DOUBLE, XSD_INTEGER, XSD_STRING

    try:
        # The lexical form stays as written: a float would turn 21.50 into 21.5, and messages show it.
        found = json.loads(
            solution,
            parse_float=lambda text: SolutionTerm(text, XSD_DOUBLE),
            parse_int=lambda text: SolutionTerm(text, XSD_INTEGER),
        )
    except ValueError as error:
        raise misused(f"the solution is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise misused('a solution is a JSON object of variables and values, such as {"id": "kitchen", "dimming": 40}')
    terms = {}
    for name, value in found.items():
        if isinstance(value, SolutionTerm):
            terms[name] = value
        elif isinstance(value, bool):
            terms[name] = SolutionTerm("true" if value else "false", XSD_BOOLEAN)
        elif isinstance(value, str):
            iri = len(value) > 2 and value.startswith("<") and value.endswith(">")
            terms[name] = SolutionTerm(value[1:-1], None) if iri else SolutionTerm(value, XSD_STRING)
        elif value is not None:
            raise misused(f'"{name}" is neither a text, a number nor a boolean')
    return terms


def _mapper(settings: Settings, own: Path | None) -> Mapper:
    """Return a mapper as the gateway would build it; `own` replaces the gateway's own files."""
    from edge.mapping import Mapper, MappingError, MappingLimits, load_builtin
    from edge.mapping_files import load_file

    # The limits of the gateway, so that the test refuses the same payloads.
    limits = MappingLimits(payload=settings.mappings.max_payload, readings=settings.mappings.max_readings)
    try:
        files = [load_file(own, limits=limits)] if own is not None else _files_of(settings.mappings_dir, limits)
        return Mapper([*files, *(load_builtin(name, limits=limits) for name in settings.mappings.packs)], limits)
    except MappingError as error:
        raise misused("\n".join(map(str, error.faults))) from None
    except OSError as error:
        raise misused(f"{error.filename} cannot be read: {error.strerror}") from None


def _files_of(directory: Path, limits: Any) -> list[MappingPack]:  # noqa: ANN401 - MappingLimits, imported late
    from edge.mapping_files import is_mapping_file, load_file

    if not directory.is_dir():
        return []
    return [load_file(file, limits=limits) for file in sorted(filter(is_mapping_file, directory.iterdir()))]


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise misused("the payload is not hexadecimal, such as 01 00 D7") from None


def _show(explanation: MessageExplanation) -> None:
    from edge.mapping import members

    outcome = explanation.outcome
    lines = []
    for candidate in explanation.candidates:
        captures = ", ".join(f"{name}={printable(value)}" for name, value in candidate.captures.items())
        mark = "*" if candidate.applied else " "
        lines.append(f"{mark} {candidate.mapping} ({candidate.topic}): {printable(candidate.why)}")
        if captures:
            lines.append(f"    with {captures}")
    for reading in outcome.readings:
        lines += ["", *(f"  {key:<12} {printable(value)}" for key, value in members(reading).items())]
    if outcome.problems:
        lines += ["", *(f"! {printable(str(problem))}" for problem in outcome.problems)]
    if outcome.matched:
        if not outcome.readings and not outcome.problems:
            lines.append("no observation")
        elif explanation.reasons:
            lines.append("")
        lines += (f"  {printable(reason)}" for reason in explanation.reasons)
        click.echo("\n".join(lines))
        for each in explanation.missing:
            click.echo(f"edge: {printable(each)}", err=True)
        return
    lines.append(f"no mapping matches {printable(explanation.topic)}")
    if explanation.nearest:
        lines.append(f"most similar:  {', '.join(explanation.nearest)}")
    lines += (f"  {each.mapping} ({each.topic}): {printable(each.why)}" for each in explanation.others)
    if explanation.suggestion:
        lines += ["", "A possible mapping:", ""]
    click.echo("\n".join(lines), err=True)
    # On standard output, so that it can be redirected into a file.
    if explanation.suggestion:
        click.echo(explanation.suggestion, nl=False)
