"""Queries of a gateway's live graph, for use with the history: solutions as terms or as DataFrames.

A stored observation refers to the live one by `dcterms:isVersionOf`, and both have the same sensor, property and
feature: join on these. Do not join on literals: the gateway may write numbers and times in another lexical form.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx

from spark_offload.errors import GatewayRefused
from spark_offload.solutions import GatewaySolutions, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGEST: Final = 64 << 20
"""Upper bound of an answer, in bytes."""
TIMEOUT: Final = 60.0
"""Seconds without data after which a request fails."""
_RESULTS: Final = "application/sparql-results+json"


@dataclass(frozen=True, slots=True)
class GatewayEndpoint:
    """A SPARQL endpoint of a gateway (SPARQL 1.1 Protocol)."""

    url: str
    """URL of the query endpoint: http://HOST:8000/query."""
    token: str = field(default="", repr=False)
    """Bearer token. It is sent only to this URL, and only over HTTPS or loopback."""
    ca_file: str | os.PathLike[str] = ""
    """CA certificate (PEM) that verifies the gateway's certificate; empty: the CA certificates of this machine."""

    def __post_init__(self) -> None:
        """Check URL and token. Raises `GatewayRefused`."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GatewayRefused(f"{self.url} is not a URL of a gateway: write http://HOST:8000/query")
        if self.token and parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise GatewayRefused(f"{self.url} is not encrypted and would expose the token: use https")

    def select(self, query: str) -> GatewaySolutions:
        """Return the solutions of a SELECT. Raises `GatewayRefused`."""
        return parsed(self.url, self._ask(query))

    def frame(self, spark: SparkSession, query: str) -> DataFrame:
        """Return the solutions in the format of `History.sparql`: a column for each variable, terms in N-Triples.

        Raises `GatewayRefused`.
        """
        from pyspark.sql.types import StringType, StructField, StructType

        from spark_offload.local_rows import local_frame
        from spark_offload.sparql.terms import written

        found = self.select(query)
        rows = [tuple(None if term is None else written(term) for term in row) for row in found.rows]
        return local_frame(spark, rows, StructType([StructField(name, StringType()) for name in found.variables]))

    def _ask(self, query: str) -> bytes:
        header = {"Content-Type": "application/sparql-query", "Accept": _RESULTS}
        if self.token:
            header["Authorization"] = f"Bearer {self.token}"
        body = bytearray()
        try:
            with (
                # httpx follows no redirects by default, so the token reaches no other server.
                httpx.Client(timeout=TIMEOUT, verify=ssl.create_default_context(cafile=self.ca_file or None)) as client,
                client.stream("POST", self.url, content=query.encode(), headers=header) as answer,
            ):
                for part in answer.iter_bytes():
                    body += part
                    # Checked while the answer arrives, so that it never takes more memory than that.
                    if len(body) > LARGEST:
                        raise GatewayRefused(
                            f"the answer of {self.url} is larger than {LARGEST >> 20} MiB: narrow the query"
                        )
        except (httpx.HTTPError, OSError) as error:
            raise GatewayRefused(f"{self.url} does not answer ({error}): is the gateway running?") from None
        if answer.status_code != httpx.codes.OK:
            advice = ": give a token with the permission" if answer.status_code in (401, 403) else ""
            raise GatewayRefused(f"{self.url} answered {answer.status_code}{advice}: {_excerpt(bytes(body))}")
        return bytes(body)


def _is_loopback(host: str) -> bool:
    """Return whether messages to a host stay on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _excerpt(body: bytes) -> str:
    """Return the beginning of an error message on one line."""
    return " ".join(body[:500].decode(errors="replace").split()) or "(no error message)"
