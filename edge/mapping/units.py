"""Units in mapping files: IRIs, unit codes and symbols. Names that QUDT does not have are faults.

`qudt_units.tsv` has the names of QUDT 1.1 and QUDT 2 (https://qudt.org), with symbols and UCUM codes. All of it is read
only for codes and symbols that `unit_symbols` does not have: it takes 16 ms and a megabyte.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from edge.mapping.errors import BadKeyError
from edge.mapping.fault_reasons import because
from edge.mapping.terms import constant
from edge.mapping.unit_symbols import QUDT_1_1, QUDT_2, UNIT_CODES, unit_symbols

_AMBIGUOUS: Final = {
    "C": 'is the coulomb in SenML and UCUM, but often means "°C"; write "°C" or "unit:Coulomb"',
    "F": 'is the farad in SenML and UCUM, but often means "°F"; write "°F" or "unit:Farad"',
}
"""Codes that people write for another unit. They have a meaning in SenML, and otherwise if a file gives them one."""
UNAMBIGUOUS_CODES: Final[dict[str, str]] = {code: iri for code, iri in UNIT_CODES.items() if code not in _AMBIGUOUS}
"""Unit code to unit IRI, without codes that people also write for another unit."""
_PREFIXES: Final = {QUDT_1_1: "unit:", QUDT_2: "qudt-unit-2:"}
_CURIE_OR_IRI: Final = "a symbol or a unit code (edge mapping units), an IRI or a CURIE"


_WORD: Final = re.compile(r"[a-z0-9_\-]{4,}")
"""A text that is probably a name, and not a symbol."""


class Unit(NamedTuple):
    """A unit of measure."""

    iri: str
    symbol: str
    """Empty if it has none."""
    codes: tuple[str, ...]
    """Texts that stand for it in `unit` and, if `common`, in payloads."""
    common: bool
    """Whether payloads can name it by its codes without a table `units`."""

    @property
    def name(self) -> str:
        """The last part of its IRI."""
        return _name(self.iri)


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    iris: frozenset[str]
    codes: Mapping[str, str]
    """By UCUM code or symbol: the IRI. Without those that stand for several units."""
    units: tuple[Unit, ...]


class UnknownUnit(BadKeyError):
    """QUDT does not have the unit. `iri` is its IRI."""

    def __init__(self, iri: str, written: str, nearest: str | None) -> None:
        super().__init__(because("unknown_unit", name=written), nearest=nearest, allowed=_CURIE_OR_IRI)
        self.iri = iri


def unit_iri(text: str, namespaces: Mapping[str, str], codes: Mapping[str, str | None]) -> str:
    """Return the IRI of a unit: an IRI, a CURIE, one of the `codes` of the file, a symbol, or a UCUM code.

    Raises `UnknownUnit` for a name that QUDT does not have, `BadKeyError` for all other texts.
    """
    code = codes.get(text)
    if code is not None:
        return code
    if text in _AMBIGUOUS:
        raise BadKeyError(f'"{text}" {_AMBIGUOUS[text]}.')
    if ":" in text or text.startswith("<"):
        iri = constant(text, namespaces)
        if not is_known(iri):
            raise UnknownUnit(iri, text, _nearest(iri))
        return iri
    found = _vocabulary().codes.get(text)
    if found is None:
        raise BadKeyError(because("not_a_unit", name=text), nearest=_nearest(text), allowed=_CURIE_OR_IRI)
    return found


def is_known(iri: str) -> bool:
    """Whether QUDT has the unit. Units of other vocabularies are not checked."""
    base = next((base for base in (QUDT_1_1, QUDT_2) if iri.startswith(base)), None)
    return base is None or iri in _common() or _has_name(base, iri.removeprefix(base))


def _has_name(base: str, name: str) -> bool:
    """Return whether QUDT has the unit. A search of the text: the gateway's own files have two such units."""
    names = _text().partition(f"@ {base}")[2].partition("\n@ ")[0] + "\n"
    return f"\n{name}\t" in names or f"\n{name}\n" in names


@cache
def _text() -> str:
    return (resources.files("edge") / "mapping" / "qudt_units.tsv").read_text("utf-8")


def all_units() -> tuple[Unit, ...]:
    """Return all units of QUDT 1.1 and 2, the common ones first."""
    return _vocabulary().units


@cache
def _common() -> frozenset[str]:
    return frozenset(UNIT_CODES.values())


@cache
def _vocabulary() -> _Vocabulary:
    common: dict[str, list[str]] = {}
    for code, iri in UNIT_CODES.items():
        common.setdefault(iri, []).append(code)
    symbols = unit_symbols()
    first = [
        Unit(iri, symbols[_name(iri)], tuple(code for code in codes if code not in _AMBIGUOUS), True)
        for iri, codes in common.items()
    ]
    # A unit of QUDT 2 that a common unit of QUDT 1.1 stands for keeps its name, but its codes mean the common one.
    others = [unit for unit in _entries() if unit.iri not in common]
    counted = Counter(code for unit in others for code in {*unit.codes, unit.symbol})
    codes: dict[str, str] = {}
    further: list[Unit] = []
    for unit in others:
        own = tuple(
            code
            for code in dict.fromkeys((*unit.codes, unit.symbol))
            if code and counted[code] == 1 and code not in UNIT_CODES and code not in _AMBIGUOUS
        )
        codes.update(dict.fromkeys(own, unit.iri))
        further.append(unit._replace(codes=own))
    return _Vocabulary(frozenset(unit.iri for unit in (*first, *further)), codes, (*first, *further))


def _entries() -> Iterator[Unit]:
    base = ""
    for line in _text().splitlines():
        if line.startswith("@ "):
            base = line[2:]
        elif not line.startswith("#"):
            name, symbol, codes = (*line.split("\t"), "", "")[:3]
            # Keyboards have the micro sign or "u" for the Greek letter of the symbol.
            micro = (symbol.replace("μ", "µ"), symbol.replace("μ", "u")) if "μ" in symbol else ()
            yield Unit(base + name, symbol, (*codes.split(), *micro), False)


def _nearest(text: str) -> str | None:
    """Return the most similar unit, as a mapping file would name it."""
    import difflib  # 3 ms, and only suggestions need it

    base = next((base for base in (QUDT_1_1, QUDT_2) if text.startswith(base)), "")
    word = text.removeprefix(base).lower()
    names: dict[str, str] = {}
    codes: dict[str, str] = {}
    for unit in reversed(all_units()):  # the common ones win
        if unit.iri.startswith(base):
            names[unit.name.lower()] = unit.iri
            codes.update(dict.fromkeys(map(str.lower, unit.codes), unit.iri))
    # A similar name is a likely correction; a similar code is another unit, unless only its case differs.
    words = {**{code: iri for code, iri in codes.items() if _WORD.fullmatch(code)}, **names}
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.7) if _WORD.fullmatch(word) else []
    iri = codes.get(word) or (words[close[0]] if close else None)
    if iri is None:
        return None
    return next(prefix + iri.removeprefix(base) for base, prefix in _PREFIXES.items() if iri.startswith(base))


def _name(iri: str) -> str:
    return iri.rpartition("#")[2].rpartition("/")[2]
