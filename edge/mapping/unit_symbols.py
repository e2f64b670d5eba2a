"""From the unit codes that payloads carry to unit IRIs: the SenML registry (RFC 8428 and 8798) and common symbols.

Units are QUDT 1.1 terms, as in the paper's listings. What QUDT 1.1 does not name is a QUDT 2 term.
"""

from __future__ import annotations

from typing import Final

QUDT_1_1: Final = "http://qudt.org/1.1/vocab/unit#"
QUDT_2: Final = "http://qudt.org/vocab/unit/"

_QUDT_1_1_NAMES: Final = {
    "Meter": ("m",),
    "Millimeter": ("mm",),
    "Centimeter": ("cm",),
    "Kilometer": ("km",),
    "Kilogram": ("kg",),
    "Gram": ("g",),
    "SecondTime": ("s", "sec", "EL"),
    "MilliSecond": ("ms",),
    "MinuteTime": ("min",),
    "Hour": ("h",),
    "Day": ("d",),
    "Ampere": ("A",),
    "Kelvin": ("K",),
    "Candela": ("cd",),
    "Mole": ("mol",),
    "Hertz": ("Hz",),
    "KiloHertz": ("kHz",),
    "Radian": ("rad",),
    "Steradian": ("sr",),
    "Newton": ("N",),
    "Pascal": ("Pa",),
    "KiloPascal": ("kPa",),
    "Millibar": ("mbar", "hPa"),
    "Bar": ("bar",),
    "Joule": ("J",),
    "Watt": ("W",),
    "Kilowatt": ("kW",),
    "Coulomb": ("C",),
    "Volt": ("V",),
    "Farad": ("F",),
    "Ohm": ("Ohm", "Ω", "ohm"),
    "Siemens": ("S",),
    "Weber": ("Wb",),
    "Tesla": ("T",),
    "Henry": ("H",),
    "DegreeCelsius": ("Cel", "°C", "degC", "celsius"),
    "DegreeFahrenheit": ("degF", "°F", "fahrenheit"),
    "Lumen": ("lm",),
    "Lux": ("lx", "lux"),
    "Becquerel": ("Bq",),
    "Gray": ("Gy",),
    "Sievert": ("Sv",),
    "Katal": ("kat",),
    "SquareMeter": ("m2", "m²"),
    "CubicMeter": ("m3", "m³"),
    "Liter": ("l", "L"),
    "MeterPerSecond": ("m/s",),
    "KilometerPerHour": ("km/h",),
    "MeterPerSecondSquared": ("m/s2",),
    "CubicMeterPerSecond": ("m3/s",),
    "CubicMeterPerHour": ("m3/h", "m³/h"),
    "WattPerSquareMeter": ("W/m2", "W/m²"),
    "CandelaPerSquareMeter": ("cd/m2",),
    "KilogramPerCubicMeter": ("kg/m3",),
    "Bit": ("bit",),
    "Byte": ("B",),
    "BitsPerSecond": ("bit/s",),
    "DegreeAngle": ("lat", "lon", "deg", "°"),
    "Decibel": ("dB",),
    "DecibelReferredToOneMilliwatt": ("dBm",),
    "Number": ("count", "beats"),
    "Unitless": ("/", "1"),
    "Percent": ("%", "%RH", "%EL", "percent"),
    "HeartBeatsPerMinute": ("beat/min",),
    "RevolutionPerMinute": ("rpm",),
    "Watthour": ("Wh",),
    "Kilowatthour": ("kWh",),
    "AmpereHour": ("Ah",),
}

_QUDT_2_NAMES: Final = {
    "PH": ("pH",),
    "PPM": ("ppm",),
    "PPB": ("ppb",),
    "MicroGM-PER-M3": ("ug/m3", "µg/m³", "μg/m³"),
    "V-A": ("VA",),
    "V-A_Reactive": ("var", "VAr"),
    "KiloV-A": ("kVA",),
    "KiloV-A_Reactive": ("kvar",),
    "KiloV-A-HR": ("kVAh",),
    "KiloV-A_Reactive-HR": ("kvarh",),
    "MilliV": ("mV",),
    "MilliA": ("mA",),
    "S-PER-M": ("S/m",),
    "L-PER-SEC": ("l/s",),
    "L-PER-MIN": ("l/min", "L/min"),
    "PER-SEC": ("1/s",),
    "PER-MIN": ("1/min",),
    "J-PER-M": ("J/m",),
    "MegaHZ": ("MHz",),
    "KibiBYTE": ("KiB",),
    "GigaBYTE": ("GB",),
    "BYTE-PER-SEC": ("B/s",),
    "MegaBYTE-PER-SEC": ("MB/s",),
    "MegaBIT-PER-SEC": ("Mbit/s",),
    "MilliM-PER-HR": ("mm/h",),
    "M-PER-HR": ("m/h",),
    "GM-PER-M3": ("g/m3", "g/m³"),
}


def _table() -> dict[str, str]:
    table: dict[str, str] = {}
    for base, names in ((QUDT_1_1, _QUDT_1_1_NAMES), (QUDT_2, _QUDT_2_NAMES)):
        for name, codes in names.items():
            table.update(dict.fromkeys(codes, base + name))
    return table


UNIT_CODES: Final[dict[str, str]] = _table()
"""Unit code of a payload to unit IRI. `C` is the coulomb, as in SenML; files can override it in `units`."""

_SYMBOLS: Final = {
    "Millibar": "hPa",
    "Ohm": "Ω",
    "DegreeCelsius": "°C",
    "DegreeFahrenheit": "°F",
    "SquareMeter": "m²",
    "CubicMeter": "m³",
    "MeterPerSecondSquared": "m/s²",
    "CubicMeterPerSecond": "m³/s",
    "CubicMeterPerHour": "m³/h",
    "WattPerSquareMeter": "W/m²",
    "CandelaPerSquareMeter": "cd/m²",
    "KilogramPerCubicMeter": "kg/m³",
    "DegreeAngle": "°",
    "Number": "",
    "Unitless": "",
    "HeartBeatsPerMinute": "bpm",
    "MicroGM-PER-M3": "µg/m³",
    "GM-PER-M3": "g/m³",
}
"""Symbols that are not the first code of a unit."""

_OTHER_SYMBOLS: Final = {
    "PercentRH": "% RH",
    "PERCENT": "%",
    "PERCENT_RH": "% RH",
    "DEG_C": "°C",
    "DEG_F": "°F",
    "DEG": "°",
    "K": "K",
    "M": "m",
    "SEC": "s",
    "MIN": "min",
    "HR": "h",
    "V": "V",
    "A": "A",
    "W": "W",
    "KiloW": "kW",
    "W-HR": "Wh",
    "KiloW-HR": "kWh",
    "HZ": "Hz",
    "LUX": "lx",
    "PA": "Pa",
    "HectoPA": "hPa",
    "HectoPascal": "hPa",
    "Hectopascal": "hPa",
    "MegaHertz": "MHz",
    "GigaHertz": "GHz",
    "MilliVolt": "mV",
    "MilliAmpere": "mA",
    "KiloWatt": "kW",
    "WattHour": "Wh",
    "KilowattHour": "kWh",
    "VoltAmpere": "VA",
    "DecibelMilliwatt": "dBm",
    "PartsPerMillion": "ppm",
    "KiloByte": "kB",
    "MegaByte": "MB",
    "GigaByte": "GB",
    "BYTE": "B",
    "MicroGramPerCubicMeter": "µg/m³",
    "MicrogramPerCubicMeter": "µg/m³",
    "Dimensionless": "",
    "UNITLESS": "",
    "NUM": "",
    "DEG-PER-SEC": "°/s",
    "DeciS-PER-M": "dS/m",
    "GallonUS": "gal",
    "IN": "in",
    "InchOfMercury": "inHg",
    "LB": "lb",
    "M-PER-SEC2": "m/s²",
    "MicroS-PER-CentiM": "µS/cm",
    "MilePerHour": "mph",
    "MilliGM-PER-M3": "mg/m³",
    "MillimeterOfMercury": "mmHg",
    "PSI": "psi",
}
"""Symbols of further QUDT names that mapping files and clients use without a unit code."""


def unit_symbols() -> dict[str, str]:
    """Return the symbol of each unit by the last part of its IRI; empty for units without
    one, such as a plain count.
    """
    first = {name: codes[0] for names in (_QUDT_1_1_NAMES, _QUDT_2_NAMES) for name, codes in names.items()}
    return {**first, **_SYMBOLS, **_OTHER_SYMBOLS}
