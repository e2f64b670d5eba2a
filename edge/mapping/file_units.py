"""Units of a mapping file: its codes, and the IRIs that stand for units in it."""

from __future__ import annotations

from collections.abc import Mapping

from edge.mapping.errors import BadKeyError, FaultsOfTable
from edge.mapping.inherited_keys import InheritedKeys
from edge.mapping.unit_symbols import UNIT_CODES
from edge.mapping.units import UNAMBIGUOUS_CODES, UnknownUnit, unit_iri

Codes = dict[str, str | None]
"""IRIs of units by their codes; None: the code means no unit."""


class FileUnits:
    """Finds the units of one file."""

    def __init__(
        self, units: Mapping[str, str], namespaces: dict[str, str], *, strict: bool, faults: FaultsOfTable
    ) -> None:
        """`units`: table of the file. `strict`: a unit that QUDT does not have is an error, and not a warning."""
        self._namespaces = namespaces
        self._strict = strict
        table = self._resolved(units, faults)
        self._codes: Codes = {**UNAMBIGUOUS_CODES, **table}
        self._senml_codes: Codes = {**UNIT_CODES, **table}

    def iri(self, text: str, faults: FaultsOfTable) -> str:
        """Return the IRI for the value of the key `unit`. Raises `BadKeyError`."""
        return self._iri(text, self._codes, faults, "unit")

    def codes(self, keys: InheritedKeys, payload: str, faults: FaultsOfTable) -> Codes:
        """Return the units by the codes that a payload may contain."""
        codes = self._senml_codes if payload == "senml" else self._codes
        tables = [keys.defaults, keys.mapping]
        if keys.reading is not keys.mapping:
            tables.append(keys.reading)
        sources = [source.units for source in tables if source.units]
        if not sources:
            return codes
        table = dict(codes)
        for source in sources:
            table.update(self._resolved(source, faults))
        return table

    def _resolved(self, table: Mapping[str, str], faults: FaultsOfTable) -> dict[str, str | None]:
        resolved: dict[str, str | None] = {}
        for code, unit in table.items():
            key = f'units."{code}"'
            try:
                resolved[code] = self._iri(unit, UNAMBIGUOUS_CODES, faults, key) if unit else None
            except BadKeyError as error:
                faults.add(error.under(key))
        return resolved

    def _iri(self, text: str, codes: Mapping[str, str | None], faults: FaultsOfTable, key: str) -> str:
        try:
            return unit_iri(text, self._namespaces, codes)
        except UnknownUnit as error:
            if self._strict:
                raise
            faults.warn(error.under(key))
            return error.iri
