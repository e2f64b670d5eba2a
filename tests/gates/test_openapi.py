"""The OpenAPI description matches the HTTP interface: paths, methods, errors."""

from __future__ import annotations

import schemathesis

from edge import __version__
from edge.engine.queries.oxigraph_queries import EvaluationFailed
from edge.gates.guard import OPEN_GUARD
from edge.gates.http.app import Routes
from edge.gates.http.page import FILES, VERSIONED
from edge.gates.http.views import Views
from edge.gates.rate_limit import RateLimit
from edge.gates.settings import HttpGateSettings, LimitSettings
from edge.metrics import Metrics
from edge.protocol.errors import EdgeError, SubscriptionFailed, Unauthorized, UpgradeRequired


async def description(gateway):
    async with gateway.http() as http:
        answer = await http.get("/api/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def operations(paths):
    return {(path, method.upper()) for path, methods in paths.items() for method in methods if method != "parameters"}


async def test_the_document_is_openapi_of_this_version(gateway):
    received = await description(gateway)
    schemathesis.openapi.from_dict(received).validate()
    assert received["info"]["version"] == __version__


async def test_the_document_lists_exactly_the_served_paths_and_methods(gateway):
    received = operations((await description(gateway))["paths"])
    rate_limit = RateLimit(LimitSettings())
    made = Routes(gateway.engine, HttpGateSettings(), Metrics(), Views(), OPEN_GUARD, rate_limit, authority=object())
    routes = made.app().routes
    there = {
        (route.path.replace(":path", ""), method)
        for route in routes
        if route.path not in {*FILES, VERSIONED}
        for method in route.methods - {"HEAD", "OPTIONS"}
    }
    assert received == there


async def test_the_document_lists_every_error(gateway):
    received = (await description(gateway))["components"]["schemas"]["Error"]["properties"]["error"]["enum"]
    over_http = {error.error for error in tree(EdgeError) if error.__module__ == EdgeError.__module__}
    over_http |= {EvaluationFailed.error}
    over_http -= {Unauthorized.error, SubscriptionFailed.error, UpgradeRequired.error}
    assert received == sorted(over_http)


def tree(kind):
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)
