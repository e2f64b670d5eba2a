"""Recent values of observations: parameters of a request, and the response as JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.requests import Request

from edge.gates.http.body import parse_parameters
from edge.negotiation import choose
from edge.protocol.due_time import read_time
from edge.protocol.errors import InvalidRequest, NotAcceptable
from edge.protocol.series import (
    MOST_OBSERVATIONS,
    MOST_POINTS,
    USUAL_POINTS,
    SeriesExtent,
    SeriesRequest,
    SeriesResult,
    SeriesRow,
)

JSON: Final = "application/json"
CSV: Final = "text/csv"

_FORMATS: Final = {"json": JSON, "csv": CSV}
_PARAMETERS: Final = ("observation", "from", "to", "points", "format")
_BEFORE: Final = re.compile(r"-(\d{1,9})([smhd])", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SECOND: Final = 1_000_000
"""Microseconds."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS: Final = ("observation", "graph", "time", "value", "min", "max", "mean", "count")


def read_series(request: Request, now: int) -> SeriesRequest | None:
    """Return the requested series; None: the list of all series. `now`: microseconds since 1970.

    Raises `InvalidRequest`.
    """
    observations: list[str] = []
    given: dict[str, str] = {}
    for name, value in parse_parameters(request.scope["query_string"]):
        if name == "observation":
            observations.append(value)
        elif name not in _PARAMETERS:
            raise InvalidRequest(f'Unknown parameter "{name}"; use {", ".join(_PARAMETERS)}')
        elif name in given:
            raise InvalidRequest(f'The parameter "{name}" must be given once')
        else:
            given[name] = value
    if not observations:
        if unused := sorted(set(given) - {"format"}):
            raise InvalidRequest(f'"{unused[0]}" needs an observation; give the parameter "observation" with its IRI')
        return None
    if "" in observations:
        raise InvalidRequest('"observation" is empty; give the IRI of an observation')
    if len(observations) > MOST_OBSERVATIONS:
        raise InvalidRequest(f"A request can name up to {MOST_OBSERVATIONS} observations, not {len(observations)}")
    begin = _time("from", given.get("from", "-24h"), now)
    # The end is not included, so a value of this very moment would be missing.
    end = _time("to", given.get("to", "now"), now) + (1 if given.get("to", "now") == "now" else 0)
    if begin >= end:
        raise InvalidRequest('"from" must be before "to"')
    return SeriesRequest(tuple(observations), begin, end, _points(given.get("points", str(USUAL_POINTS))))


def read_format(request: Request) -> str:
    """Return the media type of the response: that of the parameter "format", or else of the `Accept` header.

    Raises `InvalidRequest`, `NotAcceptable`.
    """
    wanted = dict(parse_parameters(request.scope["query_string"])).get("format")
    if wanted is not None:
        if wanted not in _FORMATS:
            raise InvalidRequest('"format" must be json or csv')
        return _FORMATS[wanted]
    chosen = choose(request.headers.get("accept"), (JSON, CSV))
    if chosen is None:
        raise NotAcceptable(f"The recent values are available as {JSON} and {CSV}")
    return chosen


def _time(name: str, text: str, now: int) -> int:
    if text == "now":
        return now
    if before := _BEFORE.fullmatch(text):
        return max(0, now - int(before[1]) * _UNITS[before[2]] * _SECOND)
    try:
        return max(0, read_time(text))  # nothing was recorded before 1970
    except ValueError:
        # A + that is not escaped arrives as a space (application/x-www-form-urlencoded).
        hint = "; in a URL, + is written %2B" if " " in text else ""
        raise InvalidRequest(
            f'"{name}" must be a time with time zone such as 2030-01-31T12:00:00Z, a time before now such as -90s, '
            f'-30m, -24h or -7d, or "now"; it is {text[:50]!r}{hint}'
        ) from None


def _points(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST_POINTS):
        raise InvalidRequest(f'"points" must be a number from 1 to {MOST_POINTS:,}, or "all"; it is {text[:50]!r}')
    return int(text)


def to_json(request: SeriesRequest, results: Sequence[SeriesResult]) -> bytes:
    """Return the rows of all series as JSON."""
    known = {result.observation for result in results}
    period = {"from": _text(request.begin), "to": _text(request.end)}
    unknown = [each for each in dict.fromkeys(request.observations) if each not in known]
    return f'{_json(period)[:-1]},"series":[{",".join(map(_series, results))}],"unknown":{_json(unknown)}}}'.encode()


def _series(result: SeriesResult) -> str:
    step = None if result.step is None else result.step / _SECOND
    about = {"observation": result.observation, "graph": result.graph, "kind": result.kind, "step": step}
    # One row at a time: as objects of Python, all rows take ten times the memory of their text.
    return f'{_json(about)[:-1]},"rows":[{",".join([_json(_row(row)) for row in result.rows])}]}}'


def to_csv(results: Sequence[SeriesResult]) -> bytes:
    """Return the rows of all series as CSV (RFC 4180)."""
    return _csv(
        _COLUMNS,
        ([result.observation, result.graph, *_cells(row)] for result in results for row in result.rows),
    )


def listed_as_json(extents: Iterable[SeriesExtent]) -> bytes:
    """Return the list of all series as JSON."""
    return _json({"series": [dict(zip(_LISTED, _extent(each), strict=True)) for each in extents]}).encode()


def listed_as_csv(extents: Iterable[SeriesExtent]) -> bytes:
    """Return the list of all series as CSV."""
    return _csv(_LISTED, map(_extent, extents))


_LISTED: Final = ("observation", "graph", "kind", "from", "to")


def _extent(extent: SeriesExtent) -> list[str]:
    return [extent.observation, extent.graph, extent.kind, _text(extent.begin), _text(extent.end)]


def _row(row: SeriesRow) -> dict[str, object]:
    found: dict[str, object] = {"time": _text(row.time), "value": row.value}
    if row.samples is not None:
        if row.low is not None:
            found |= {"min": row.low, "max": row.high, "mean": _rounded(row.mean)}
        found["count"] = row.samples
    return found


def _cells(row: SeriesRow) -> list[object]:
    cells = (row.value, row.low, row.high, _rounded(row.mean), row.samples)
    return [_text(row.time), *(str(cell).lower() if isinstance(cell, bool) else cell for cell in cells)]


def _rounded(mean: float | None) -> float | None:
    """Return a mean without the digits that the sum of doubles adds; None for one that JSON cannot have."""
    if mean is None or not math.isfinite(mean):  # earlier versions stored infinite means of large values
        return None
    rounded = float(f"{mean:.15g}")
    return rounded if math.isfinite(rounded) else mean


def _text(time: int) -> str:
    moment = _EPOCH + timedelta(microseconds=time)
    if moment.microsecond == 0:
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0") + "Z"


_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _csv(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()
