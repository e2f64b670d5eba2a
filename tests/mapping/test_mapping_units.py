"""Units in mapping files: IRIs, codes and symbols, checked against QUDT."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.mapping import Mapper, MappingError, all_units, load_pack
from edge.mapping.terms import NAMESPACES
from edge.mapping.unit_symbols import QUDT_1_1, QUDT_2, UNIT_CODES, unit_symbols
from edge.mapping.units import is_known, unit_iri
from edge.mapping.units_page import page


def unit(text, more=""):
    pack = load_pack(f'[[mapping]]\ntopic = "a"\nobservation = "edge:a"\nunit = "{text}"\n{more}', "my")
    (reading,) = Mapper([pack]).map("a", b"21.5").readings
    return reading.unit


def fault(text):
    with pytest.raises(MappingError) as error:
        unit(text)
    (found,) = error.value.faults
    return found


@pytest.mark.parametrize(
    ("text", "iri"),
    [
        ("unit:DegreeCelsius", QUDT_1_1 + "DegreeCelsius"),
        ("°C", QUDT_1_1 + "DegreeCelsius"),
        ("Cel", QUDT_1_1 + "DegreeCelsius"),
        ("%", QUDT_1_1 + "Percent"),
        ("kWh", QUDT_1_1 + "Kilowatthour"),
        ("unit:Inch", QUDT_1_1 + "Inch"),
        ("[in_i]", QUDT_2 + "IN"),  # UCUM
        ("mS/cm", QUDT_2 + "MilliS-PER-CentiM"),
        ("uS/cm", QUDT_2 + "MicroS-PER-CentiM"),
        ("\u00b5S/cm", QUDT_2 + "MicroS-PER-CentiM"),  # micro sign
        ("\u03bcS/cm", QUDT_2 + "MicroS-PER-CentiM"),  # Greek letter
        ("qudt-unit-2:DEG_C", QUDT_2 + "DEG_C"),
        ("http://example.org/units#Bed", "http://example.org/units#Bed"),
    ],
)
def test_a_unit_is_an_iri_a_code_or_a_symbol(text, iri):
    assert unit(text) == iri


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("unit:Celcius", "unit:DegreeCelsius"),
        ("celcius", "unit:DegreeCelsius"),
        ("unit:Kilowatts", "unit:Kilowatt"),
        ("KWh", "unit:Kilowatthour"),
        ("qudt-unit-2:DEGC", "qudt-unit-2:DEG_C"),
        ("mph", None),  # similar codes are other units
        ("xS/cm", None),
        ("", None),
    ],
)
def test_an_unknown_unit_is_a_fault_with_a_suggestion(text, nearest):
    found = fault(text)
    assert (found.line, found.key, found.nearest) == (4, "unit", nearest)


@pytest.mark.parametrize(("text", "meant"), [("C", "unit:Coulomb"), ("F", "unit:Farad")])
def test_a_code_that_often_means_another_unit_is_refused(text, meant):
    assert meant in fault(text).reason
    assert unit(text, 'units = {}\n[units]\nC = "°C"\nF = "°F"\n').startswith(QUDT_1_1 + "Degree")


@pytest.mark.parametrize("code", ["C", "F"])
def test_such_a_code_in_a_payload_needs_a_meaning(code):
    """In SenML it has one."""
    text = '[[mapping]]\ntopic = "a"\nobservation = "edge:a"\npath = "t"\nunit_from = "u"\n'
    payload = f'{{"t": 1, "u": "{code}"}}'.encode()
    mapped = Mapper([load_pack(text, "my")]).map("a", payload)
    assert (mapped.readings[0].unit, mapped.problems[0].what) == (None, "unit")
    mapped = Mapper([load_pack(text + f'units = {{ {code} = "unit:Coulomb" }}\n', "my")]).map("a", payload)
    assert (mapped.readings[0].unit, mapped.problems) == (QUDT_1_1 + "Coulomb", ())
    senml = '[[mapping]]\ntopic = "a"\npayload = "senml"\nobservation = "edge:{name}"\n'
    mapped = Mapper([load_pack(senml, "my")]).map("a", f'[{{"n": "x", "u": "{code}", "v": 1}}]'.encode())
    assert mapped.readings[0].unit is not None


def test_a_unit_with_captures_is_not_checked():
    pack = load_pack('[[mapping]]\ntopic = "a/{u}"\nobservation = "edge:a"\nunit = "unit:{u}"\n', "my")
    assert Mapper([pack]).map("a/Volt", b"1").readings[0].unit == QUDT_1_1 + "Volt"


def test_the_common_units_are_units_of_qudt():
    names = {each.iri for each in all_units()}
    assert len(all_units()) == len(names) > 3_500
    assert set(UNIT_CODES.values()) <= names
    assert [name for name in sorted(names)[::20] if not is_known(name)] == []
    others = (
        {name[:-1] for name in names} | {f"{name}x" for name in names} | {QUDT_1_1, QUDT_2, f"{QUDT_2}@ {QUDT_1_1}"}
    )
    assert [name for name in sorted(others - names)[::40] if is_known(name)] == []


def test_the_page_of_the_documentation_lists_the_common_units():
    assert page() == (Path(__file__).parents[2] / "docs/reference/units.md").read_text("utf-8"), "run make docs"


def test_each_code_stands_for_one_unit():
    codes = [code for each in all_units() for code in each.codes]
    assert len(codes) == len(set(codes))


PACKS = sorted((Path(__file__).parents[2] / "edge" / "device_mappings").glob("*.toml"))


def units_in(value: object) -> Iterator[str]:
    """Yield the texts of all keys `unit` and of all tables `units`."""
    if isinstance(value, list):
        for each in value:
            yield from units_in(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key == "unit" and isinstance(each, str):
                yield each
            elif key == "units":
                yield from each.values()
            else:
                yield from units_in(each)


@pytest.mark.parametrize("file", PACKS, ids=lambda file: file.stem)
def test_the_page_has_a_symbol_for_each_unit_of_the_packs(file):
    symbols = unit_symbols()
    pack = tomllib.loads(file.read_text(encoding="utf-8"))
    namespaces = {**NAMESPACES, **pack.get("namespaces", {})}
    iris = {unit_iri(text, namespaces, UNIT_CODES) for text in units_in(pack) if text}
    assert [iri for iri in sorted(iris) if iri.rpartition("#")[2].rpartition("/")[2] not in symbols] == []
