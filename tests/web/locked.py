"""A gateway that requires a token, and its page before one is entered."""

from __future__ import annotations

from typing import Any

from edge.gateway import Gateway
from edge.security.clients import Rights
from tests.support.browser import Browser

OBSERVE = """
PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
INSERT DATA { <urn:lamp> a sosa:Observation ; sosa:hasResult <urn:r> .
  <urn:r> a qudt:QuantityValue ; qudt:numericValue 21 }
"""
LOCKED = "document.getElementById('state')?.dataset.state === 'locked' && document.getElementById('entry') !== null"
SHOWN = "document.querySelectorAll('.observation').length === 1"
STORED = "sessionStorage.getItem('sepa-edge.token')"


def member(gateway: Gateway, name: str, *actions: Any, seconds: int | None = None) -> str:
    gateway._security.clients.allow(name, Rights(frozenset(actions)))
    return gateway._security.token(name, seconds)


async def enter(page: Browser, token: str) -> None:
    await page.evaluate(f"document.getElementById('token').value = {token!r}")
    await page.evaluate("document.querySelector('#entry-form button').click()")
