"""Reports of a continuous query, received with the client library, in the form of the protocol."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pyoxigraph as ox

from edge.cli.exit_codes import misused
from edge.cli.notifications import ClientGateway, failure
from edge.client import ClientError, Report, Row, Rows, SyncClient
from edge.protocol.results import results_to_json


def reports(
    name: str, after: int | None, ws: str | None, data_dir: Path | None, *, reconnect: bool
) -> Generator[dict[str, Any]]:
    """Yield the reports of a query, those after a number or the next ones. Ends only with an exception: raises
    `Failure`.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise misused(f"the name {name!a} is not UTF-8 text") from None
    gateway = ClientGateway(ws, data_dir, reconnect=reconnect)
    try:
        with (
            SyncClient(gateway.endpoints(), options=gateway.options()) as client,
            client.reports(name, after=after) as feed,
        ):
            gateway.subscribed = True
            for report in feed:
                yield message(report)
    except ClientError as error:
        raise failure(error) from None


def message(report: Report) -> dict[str, Any]:
    """Return a report in the form of the protocol, with `missed` if reports before it are missing."""
    found: dict[str, Any] = {
        "query": report.query,
        "number": report.number,
        "time": None if report.time is None else report.time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "merged": report.merged,
    }
    if report.missed:
        found["missed"] = report.missed
    if report.correction:
        found["correction"] = True
    content = _content(report)
    graph = "application/n-quads" if report.correction else "application/n-triples"
    kind = graph if isinstance(content, str) else "application/sparql-results+json"
    return {**found, "content_type": kind, "content": content}


def _content(report: Report) -> Any:  # noqa: ANN401 - JSON
    result, removed = report.result, report.removed
    if isinstance(result, bool):
        return {"head": {}, "boolean": result}
    if isinstance(result, Rows):
        content = _results(result.variables, result)
        if isinstance(removed, Rows) and report.correction:
            content["removed"] = _results(removed.variables or result.variables, removed)["results"]
        return content
    wrong = [each for each in removed if isinstance(each, ox.Triple)]
    return "".join([*(f"{each} .\n" for each in result), *(_removed(each) for each in wrong)])


def _results(variables: tuple[str, ...], rows: Iterable[Row]) -> Any:  # noqa: ANN401 - JSON
    return json.loads(results_to_json(variables, [tuple(map(row.get, variables)) for row in rows]))


def _removed(triple: ox.Triple) -> str:
    return f"{triple.subject} {triple.predicate} {triple.object} <urn:edge:removed> .\n"
