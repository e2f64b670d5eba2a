"""`edge app`: check the profile (JSAP) of an application and show the SPARQL that it would send."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.bindings_table import columns, printable
from edge.cli.exit_codes import REFUSED, misused, refused

if TYPE_CHECKING:
    from edge.jsap import Profile, ProfileEntry, Report


@click.group()
def app() -> None:
    """Check and show the profiles (JSAP) of applications."""


@app.command(
    epilog="""\b
    Exit codes:
      0  all profiles are valid
      1  a profile has problems
      2  a file cannot be read
    """
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def check(files: tuple[Path, ...]) -> None:
    """Check profiles (JSON or YAML). Prints a line FILE:LINE:COLUMN: REASON for each problem.

    Checks members, prefixes, forced bindings, hosts, ports and the SPARQL syntax of each text. Notes are not
    problems. For valid profiles the entries are listed, with their forced bindings and target addresses.
    """
    reports = [_checked(file) for file in files]
    for file, report in zip(files, reports, strict=True):
        for problem in report.problems:
            click.echo(printable(str(problem)))
        for note in report.notes:
            click.echo(printable(str(replace(note, reason=f"note: {note.reason}"))))
        if report.profile is not None:
            updates, queries = len(report.profile.updates), len(report.profile.queries)
            click.echo(f"{file}: good, {_count(updates, 'update', 's')}, {_count(queries, 'quer', 'ies', 'y')}")
            for line in _summary(report.profile):
                click.echo(f"  {line}")
    if any(report.problems for report in reports):
        sys.exit(REFUSED)


@app.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name", required=False)
@click.option("-b", "--bind", "bindings", multiple=True, metavar="VARIABLE=VALUE", help="A forced binding; may repeat.")
def show(file: Path, name: str | None, bindings: tuple[str, ...]) -> None:
    """Print the SPARQL of an update or query as it would be sent. Without NAME: list the entries.

    \b
    edge app show chat.jsap SENT --bind receiver=schema:PersonURI2
    """
    from edge.jsap import BindingError

    report = _checked(file)
    if report.profile is None:
        raise refused("\n".join(map(str, report.problems)))
    if name is None:
        click.echo("\n".join(_summary(report.profile)))
        return
    found = [entry for entry in _entries(report.profile) if entry.name == name]
    if not found:
        listed = ", ".join(dict.fromkeys(entry.name for entry in _entries(report.profile))) or "none"
        raise misused(f'{file} has no update or query "{name}"; there are: {listed}')
    given = dict(_split(binding) for binding in bindings)
    try:
        click.echo("\n\n".join(entry.text(given) for entry in found))
    except BindingError as error:
        raise misused(f"{error}") from None


def _checked(file: Path) -> Report:
    from edge.jsap import check as check_profile

    try:
        return check_profile(file)
    except OSError as error:
        raise misused(f"{file} cannot be read: {error.strerror}") from None


def _split(binding: str) -> tuple[str, str]:
    name, equals, value = binding.partition("=")
    if not equals:
        raise misused(f'--bind {binding}: write VARIABLE=VALUE, for example --bind text="Good morning"')
    # Both signs begin a variable in SPARQL. JSAP names it without the sign.
    return name.lstrip("?$"), value


def _count(number: int, stem: str, many: str, one: str = "") -> str:
    return f"{number} {stem}{one if number == 1 else many}"


def _entries(profile: Profile) -> list[ProfileEntry]:
    return [*profile.updates.values(), *profile.queries.values()]


def _summary(profile: Profile) -> list[str]:
    """Return one line for each entry: kind, name, forced bindings, target addresses."""
    return columns([[printable(cell) for cell in _row(entry)] for entry in _entries(profile)])


def _row(entry: ProfileEntry) -> list[str]:
    bindings = [
        f"?{name} {binding.type}{'' if binding.default is None else ' (default)'}"
        for name, binding in entry.forced.items()
    ]
    targets = [f"{entry.sparql11.method} {entry.sparql11.url}"]
    if entry.kind == "query":
        targets.append(entry.sparql11se.url)
    return [entry.kind, entry.name, ", ".join(bindings) or "-", ", ".join(targets)]
