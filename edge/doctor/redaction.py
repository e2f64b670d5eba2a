"""Redaction of secrets in texts: known ones from the settings, and patterns that look like secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from edge.config import Settings
from edge.config.problem_messages import about, fields

REDACTED: Final = "***"
_SHORTEST: Final = 4
"""Minimum characters of a secret to search for: shorter ones occur in every text."""
_LARGEST: Final = 64 * 1024
"""Maximum bytes read of a file with a secret."""
# The negative look-behinds exclude settings such as `password_file` and `token_lifetime`, whose values are not secret.
_NAME: Final = (
    r"[\w.-]*(?:passw|passphrase|pwd|psk|secret|token|credential|(?:api|access|private)[_-]?key)[\w.-]*"
    r"(?<!_file)(?<!_lifetime)|pass"
)
_QUOTE: Final = r"\\*[\"']"
"""A quotation mark in a text, or escaped in a text within a text."""
_LOOKS: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w-]{5,}\.[\w-]+\.?[\w-]*"
    r"|(?P<bearer>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}"
    r"|(?P<user>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)"
    r"|(?P<query>[?&][\w.-]*(?:sig|key|auth)[\w.-]*=)[^\s&\"']+"
    rf"|(?P<pair>(?:{_QUOTE})?\b(?:{_NAME})(?:{_QUOTE})?\s*[=:]\s*)"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?P<open>\\+[\"']).*?(?:(?P=open)|\Z)|[^\s\"';&}\]]+)",
    re.IGNORECASE | re.DOTALL,
)
"""Private keys, tokens (JWT), authorization headers, passwords in URLs, and values with a revealing name."""
_SECRET_NAME: Final = re.compile(_NAME, re.IGNORECASE)


class Redactor:
    """Removes secrets from texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
        # If one secret is the beginning of another, the regular expression must try the longer one first.
        longest_first = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def clean(self, text: str) -> str:
        """Return the text with `***` in place of secrets."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        return _LOOKS.sub(_instead, text)


def secrets_of(settings: Settings, environment: Mapping[str, str]) -> set[str]:
    """Return all secrets in settings, files that they name, the data directory and the environment."""
    found: set[str] = set()
    files = sorted((settings.data_dir / "tls").glob("*.key"))
    for key, field in fields().items():
        section, _, name = key.rpartition(".")
        value = getattr(getattr(settings, section) if section else settings, name)
        if about(field, "secret") and value:
            found.add(str(value))
        elif isinstance(value, Path) and name in ("password_file", "token_file", "key_file", "enrolment_file"):
            files.append(value)
    for file in files:
        found.update(_lines(file))
    found.update(value for name, value in environment.items() if _SECRET_NAME.fullmatch(name))
    return {secret for secret in found if secret}


def _lines(file: Path) -> set[str]:
    """Return the lines of a file: each line of a key reveals a part of it."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return set()
    return {line.strip() for line in text.splitlines() if not line.startswith("-----")}


def _forms(secret: str) -> set[str]:
    """Return the encodings of a secret: plain, JSON, nested JSON, Python literal, URL."""
    return {
        secret,
        json.dumps(json.dumps(secret)[1:-1])[1:-1],
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
    }


def _instead(match: re.Match[str]) -> str:
    return next((kept for name, kept in match.groupdict().items() if kept and name != "open"), "") + REDACTED
