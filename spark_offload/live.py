"""The live graph of a gateway, beside the history: its answers as terms, and as DataFrames.

A stored observation links to the live one by `dcterms:isVersionOf`, and both have the same sensor, property and
feature: join on these. Literals are less sure: the gateway keeps numbers and times in the form of their value.
"""

from __future__ import annotations

import ipaddress
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx
import rdflib

from spark_offload.errors import GatewayRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGEST: Final = 64 << 20
"""Bytes of an answer."""
TIMEOUT: Final = 60.0
"""Seconds without a byte of an answer after which it is given up."""
_RESULTS: Final = "application/sparql-results+json"

Term = rdflib.URIRef | rdflib.Literal | rdflib.BNode


@dataclass(frozen=True, slots=True)
class Solutions:
    """What a SELECT found."""

    variables: tuple[str, ...]
    rows: tuple[tuple[Term | None, ...], ...]
    """None: nothing is bound."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A SPARQL endpoint of a gateway (SPARQL 1.1 Protocol)."""

    url: str
    """Of queries: http://HOST:8000/query."""
    token: str = field(default="", repr=False)
    """What the gateway knows the asker by; it is sent where nobody reads along, and to this gateway alone."""
    ca_file: str = ""
    """The certificate (PEM) that its own is checked against, where it is none that this machine trusts."""

    def __post_init__(self) -> None:
        """Raises `GatewayRefused`."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GatewayRefused(f"{self.url} is no address of a gateway: write http://HOST:8000/query")
        if self.token and parts.scheme == "http" and not _here(parts.hostname):
            raise GatewayRefused(f"{self.url} is not encrypted, others would read the token: use https")

    def select(self, query: str) -> Solutions:
        """What a SELECT finds. Raises `GatewayRefused`."""
        return _solutions(self.url, self._ask(query))

    def frame(self, spark: SparkSession, query: str) -> DataFrame:
        """The same as `History.sparql` has it: a column for each variable, terms as N-Triples text.

        Raises `GatewayRefused`.
        """
        from pyspark.sql.types import StringType, StructField, StructType

        from spark_offload.sparql.terms import written

        found = self.select(query)
        rows = [tuple(None if term is None else written(term) for term in row) for row in found.rows]
        return spark.createDataFrame(rows, StructType([StructField(name, StringType()) for name in found.variables]))

    def _ask(self, query: str) -> bytes:
        header = {"Content-Type": "application/sparql-query", "Accept": _RESULTS}
        if self.token:
            header["Authorization"] = f"Bearer {self.token}"
        body = bytearray()
        try:
            with (
                httpx.Client(timeout=TIMEOUT, verify=ssl.create_default_context(cafile=self.ca_file or None)) as client,
                client.stream("POST", self.url, content=query.encode(), headers=header) as answer,
            ):
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > LARGEST:
                        raise GatewayRefused(f"{self.url} answers more than {LARGEST >> 20} MiB: ask for less of it")
        except (httpx.HTTPError, OSError) as error:
            raise GatewayRefused(f"{self.url} does not answer ({error}): is the gateway there?") from None
        if answer.status_code != httpx.codes.OK:
            advice = ": give a token of it" if answer.status_code in (401, 403) else ""
            raise GatewayRefused(f"{self.url} answered {answer.status_code}{advice}: {_said(bytes(body))}")
        return bytes(body)


def _solutions(url: str, body: bytes) -> Solutions:
    """Read the JSON format (SPARQL 1.1 Query Results JSON). Raises `GatewayRefused`."""
    labels: dict[str, rdflib.BNode] = {}
    try:
        told = json.loads(body)
        variables = tuple(map(str, told["head"]["vars"]))
        rows = tuple(
            tuple(_term(row[name], labels) if name in row else None for name in variables)
            for row in told["results"]["bindings"]
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise GatewayRefused(f"{url} does not answer as a SPARQL endpoint ({error!r}): is it .../query?") from None
    return Solutions(variables, rows)


def _term(told: Mapping[str, Any], labels: dict[str, rdflib.BNode]) -> Term:
    text, kind = str(told["value"]), told["type"]
    if kind == "uri":
        return rdflib.URIRef(text)
    if kind == "bnode":  # a label is good for one answer
        return labels.setdefault(text, rdflib.BNode())
    if kind not in ("literal", "typed-literal"):
        raise ValueError(f"a term of type {kind}")
    datatype = rdflib.URIRef(told["datatype"]) if "datatype" in told else None
    return rdflib.Literal(text, lang=told.get("xml:lang"), datatype=datatype, normalize=False)


def _here(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _said(body: bytes) -> str:
    """The beginning of what is no result, on one line."""
    return " ".join(body[:500].decode(errors="replace").split()) or "it says no more"
