"""Each numeric device class of Home Assistant has a property, and each of its units one of QUDT."""

from decimal import Decimal

import pytest

from edge.discovery.device_classes import NUMERIC, WITHOUT_UNIT, unit_of
from edge.mapping.units import is_known

QUDT = "http://qudt.org/vocab/unit/"
UNITS = [(kind, unit) for kind, each in NUMERIC.items() for unit in each.units]


@pytest.mark.parametrize(("kind", "unit"), UNITS)
def test_a_unit_is_one_of_qudt(kind, unit):
    found = unit_of(unit, kind)
    if unit in WITHOUT_UNIT:
        assert found is None
        return
    assert found is not None
    assert is_known(found.iri)
    assert Decimal(found.scale) > 0


def test_units_that_qudt_lacks_are_scaled():
    assert unit_of("CCF", "gas") == (f"{QUDT}FT3", "100")
    assert unit_of("in/h", "speed") == (f"{QUDT}MilliM-PER-HR", "25.4")


def test_units_without_a_name_for_their_value():
    assert unit_of("", "ph") == (f"{QUDT}PH", "1")
    assert unit_of("", "aqi") == ("http://qudt.org/1.1/vocab/unit#Unitless", "1")
    assert unit_of("EUR", "monetary") == ("http://qudt.org/vocab/currency/EUR", "1")
    assert unit_of("€", "monetary") is None
    # A letter that stands for several units is not guessed.
    assert unit_of("C", "temperature") is None
    assert unit_of("lqi", "") is None


def test_both_letters_for_micro_are_one_unit():
    assert unit_of("\u00b5g/m³", "pm10") == unit_of("\u03bcg/m³", "pm10") == (f"{QUDT}MicroGM-PER-M3", "1")
