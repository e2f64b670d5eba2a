"""IRIs: resolution of references against a base IRI (RFC 3986, section 5.2), and validation (RFC 3987)."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# RFC 3987, section 2.2: controls, delimiters, private use outside the query, and noncharacters cannot occur.
_PLANES: Final = "".join(f"{chr((plane << 16) + 0xFFFE)}{chr((plane << 16) + 0xFFFF)}" for plane in range(1, 17))
_INVALID: Final = re.compile(
    r"%(?![0-9A-Fa-f]{2})|[\x00-\x20<>\"{}|\\^`\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufff0-\uffff\U000e0000-\U000e0fff"
    + _PLANES
    + "]"
)
_PRIVATE: Final = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]")
_AUTHORITY: Final = re.compile(
    r"(?:[^@\[\]]*@)?(?:\[(?:[0-9A-Fa-f:.]+|[vV][0-9A-Fa-f]+\.[^\[\]@/]+)\]|[^:@\[\]]*)(?::[0-9]*)?"
)


_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")


def resolve(reference: str, base: str | None) -> str:
    """Return an absolute IRI. `reference`: text between angle brackets, with its escapes.

    Raises `ValueError` for an invalid reference, or a relative one without a base. An absolute reference stays as it
    is, dot segments included, as in Oxigraph.
    """
    if "\\" in reference:
        reference = _ESCAPE.sub(lambda found: character(found[1] or found[2]), reference)
    found = _PARTS.fullmatch(reference)
    assert found is not None  # noqa: S101  the pattern matches every text
    scheme, authority, path, query, fragment = found.groups()
    _check(reference, scheme, authority, path, fragment)
    if scheme is not None:
        return reference
    if base is None:
        raise ValueError("a relative IRI without a base: add a BASE declaration, or write the whole IRI")
    based = _PARTS.fullmatch(base)
    assert based is not None  # noqa: S101
    scheme, of_base, root, asked, _ = based.groups()
    if authority is not None:
        path = _without_dots(path)
    else:
        authority = of_base
        if not path:
            path = root
            query = asked if query is None else query
        else:
            # As in Oxigraph, dot segments of the base itself stay.
            # RFC 3986, section 5.2.3: a base with an authority and an empty path counts as "/".
            begin = root[: root.rfind("/") + 1] or "/" * (of_base is not None)
            path = _without_dots(path) if path[0] == "/" else _without_dots(path, begin)
    result = f"{scheme}:"
    if authority is not None:
        result += f"//{authority}"
    result += path
    if query is not None:
        result += f"?{query}"
    return result if fragment is None else f"{result}#{fragment}"


def character(digits: str) -> str:
    """Return the character of an escape from its hexadecimal digits. Raises `ValueError` if there is none."""
    code = int(digits, 16)
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise ValueError(f"{digits} is not the number of a character")
    return chr(code)


def _check(reference: str, scheme: str | None, authority: str | None, path: str, fragment: str | None) -> None:
    invalid = _INVALID.search(reference)
    if invalid is None:
        invalid = _PRIVATE.search(f"{authority or ''}{path}{fragment or ''}")
    if invalid is not None:
        found = reference[invalid.start() : invalid.start() + 3]
        raise ValueError(f"{found!a} cannot stand in an IRI; write % and two hexadecimal digits")
    if authority is not None and _AUTHORITY.fullmatch(authority) is None:
        raise ValueError(f"{authority!a} is not a host with an optional port")
    rest = reference if authority is None else reference.replace(f"//{authority}", "", 1)
    if "[" in rest or "]" in rest:
        raise ValueError("square brackets cannot stand in an IRI, except around an IPv6 address")
    if fragment is not None and "#" in fragment:
        raise ValueError("a second # cannot stand in an IRI")
    # RFC 3986, section 4.2: the first segment of a relative path contains no colon.
    if scheme is None and authority is None and ":" in path.partition("/")[0]:
        raise ValueError("the scheme of the IRI is not valid")


def _without_dots(path: str, begin: str = "") -> str:
    """Return `begin`, a path up to its last slash, continued by a path without its segments `.` and `..`.

    See RFC 3986, section 5.2.4.
    """
    if path.startswith("/") and not begin:
        begin, path = "/", path[1:]
    root = "/" * begin.startswith("/")
    kept = begin[len(root) :].split("/")[:-1]
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return root + "/".join(kept)
