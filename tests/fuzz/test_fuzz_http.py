"""Random HTTP requests: answers match /api/openapi.json, and broken requests do not affect other clients."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from edge.gates.http.description import openapi
from edge.security.clients import ACTIONS, Rights
from tests.fuzz.fuzz_target import running
from tests.fuzz.messages import SPARQL, is_error, sendable
from tests.support.clients import clients_of
from tests.support.examples import examples

GATE = "http"

TEXTS = SPARQL.map(sendable)
for kind in ("query", "update"):
    schemathesis.openapi.format(f"sparql-{kind}", TEXTS)
    schemathesis.openapi.media_type(f"application/sparql-{kind}", TEXTS.map(str.encode))
schemathesis.openapi.media_type("application/gzip", st.binary(max_size=200))
schemathesis.openapi.media_type(
    "application/n-triples", st.binary(max_size=200) | st.just(b"<urn:a> <urn:p> <urn:o> .\n") | TEXTS.map(str.encode)
)

DESCRIBED = schemathesis.openapi.from_dict(json.loads(openapi()))
OPEN = DESCRIBED.exclude(path_regex="^/(secure|oauth)/")
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
BUDGET = settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def session():
    """Return a client of the cases that does not search for proxies before each request."""
    with requests.Session() as session:
        session.trust_env = False
        session.headers["Connection"] = "close"
        yield session


@OPEN.parametrize()
@BUDGET
def test_the_open_gateway_is_as_described(case, harness, concurrent_client, session):
    case.call_and_validate(base_url=harness.endpoints["http"], session=session, checks=CHECKS)
    concurrent_client.check_notification()
    harness.is_sound()


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """Return a gateway with security, and the token of a client with all permissions."""
    data_dir = tmp_path_factory.mktemp("secured")
    with clients_of(data_dir) as clients:
        clients.allow("fuzz", Rights(actions=ACTIONS))
    settings = {
        "EDGE__SECURITY__ENABLED": "true",
        "EDGE__SECURITY__HTTPS_PORT": "0",
        "EDGE__SECURITY__WSS_PORT": "0",
        "EDGE__MQTT__ENABLED": "false",
    }
    with running(data_dir, **settings) as harness:
        with httpx.Client(base_url=harness.endpoints["http"], trust_env=False) as http:
            identity = {"client_identity": "fuzz", "grant_types": ["client_credentials"]}
            given = http.post("/oauth/register", json={"register": identity}).json()["credentials"]
            token = http.post("/oauth/token", auth=(given["client_id"], given["client_secret"])).json()["access_token"]
        harness.authorize(token)
        yield harness, token


@DESCRIBED.parametrize()
@BUDGET
def test_the_secured_gateway_is_as_described(case, secured, session):
    harness, token = secured
    permitted = {"Authorization": f"Bearer {token}"}
    case.call_and_validate(base_url=harness.endpoints["http"], session=session, checks=CHECKS, headers=permitted)
    harness.is_sound()


# The data of the other client is separate: the connection closes at once, and the update may run during its check.
REQUEST = (
    b"POST /update?using-graph-uri=urn:g HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-update\r\n"
    b"Content-Length: 26\r\nAccept: */*\r\n\r\nCLEAR SILENT GRAPH <urn:g>"
)
LINES = st.sampled_from(
    [
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Type: application/x-www-form-urlencoded; charset=klingon\r\n",
        b"Accept: ;,;q=x\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"Authorization: \xff\xfe\r\n",
        b"Origin: null\r\n",
        b"Host: \r\n",
        b"X: " + b"x" * 70_000 + b"\r\n",
        b" folded\r\n",
        b"\r\n",
    ]
)


@st.composite
def broken(draw):
    """Return a request with invalid header lines and some changed bytes."""
    lines = REQUEST.split(b"\r\n", 1)
    text = lines[0] + b"\r\n" + b"".join(draw(st.lists(LINES, max_size=2))) + lines[1]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.binary(max_size=6)) + text[place + draw(st.integers(0, 6)) :]
    return text


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(broken() | st.binary(max_size=40), min_size=1, max_size=3))
def test_broken_requests(harness, concurrent_client, sent):
    with socket.create_connection(harness.address("http"), 20) as client, suppress(ConnectionError):
        client.sendall(b"".join(sent))
        client.shutdown(socket.SHUT_WR)
        came = b""
        while part := client.recv(65536):
            came += part
        assert not came or came.startswith(b"HTTP/1.1 ")
        assert b"HTTP/1.1 500" not in came
        assert b"internal_error" not in came
    concurrent_client.check_notification()
    harness.is_sound()


@pytest.fixture(scope="module")
def http(harness):
    with httpx.Client(base_url=harness.endpoints["http"], timeout=20, trust_env=False) as http:
        yield http


FORMS = st.lists(
    st.tuples(
        st.sampled_from(["query", "update", "delay", "at", "id", "default-graph-uri", "using-named-graph-uri", "x"]),
        TEXTS | st.sampled_from(["PT1S", "urn:g", "", "2030-01-31T12:00:00Z"]),
    ),
    max_size=5,
)
ACCEPTS = st.sampled_from(["*/*", "", "text/csv", ";", "a/b;q=z", "text/turtle,*/*;q=0.1", "application/xml;q=0.5"])
TYPES = st.sampled_from(
    ["application/x-www-form-urlencoded", "application/sparql-query", "application/sparql-update", "a;b", ""]
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["GET", "POST", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"]),
    st.sampled_from(["/query", "/update", "/sparql", "/explain", "/timers/a", "/api/engine"]),
    FORMS,
    FORMS.map(lambda fields: str(httpx.QueryParams(fields)).encode()) | TEXTS.map(str.encode) | st.binary(max_size=40),
    TYPES,
    ACCEPTS,
)
def test_parameters_bodies_and_headers_in_any_combination(
    harness, concurrent_client, http, method, path, parameters, body, media_type, accept
):
    headers = {"Content-Type": media_type, "Accept": accept}
    answer = http.request(method, path, params=parameters, content=body, headers=headers)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400 and method != "HEAD":
        assert is_error(answer.json())
    concurrent_client.check_notification()
    harness.is_sound()
