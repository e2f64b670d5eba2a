"""Error responses of the HTTP servers: problem details (RFC 9457)."""

from __future__ import annotations

import http
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response


def refuse(status: int, detail: str, headers: Mapping[str, str] | None = None) -> NoReturn:
    """End a request with a problem. Raises `HTTPException`."""
    raise HTTPException(status, detail, headers)


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for a problem."""
    body = {"title": http.HTTPStatus(status).phrase, "status": status, "detail": detail}
    return JSONResponse(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/problem+json")


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    return problem(error.status_code, error.detail, error.headers)


async def _fault(request: Request, _error: Exception) -> Response:
    """Answer an unexpected error, for example of the disk. uvicorn logs the traceback."""
    return problem(500, f"{request.method} failed; the cause is in the server's log. Try again later")


PROBLEM_HANDLERS: Final[dict[Any, Callable[[Request, Exception], Awaitable[Response]]]] = {
    HTTPException: _problem,
    Exception: _fault,
}
"""Exception handlers of an application."""
