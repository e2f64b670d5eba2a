"""Device classes and units of Home Assistant, as properties and units of QUDT.

Source: Home Assistant Developer Docs, "Sensor entity", table "Available device classes" (state of 2025), and "Number
entity", which has the same numeric classes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from edge.mapping.unit_symbols import QUDT_1_1, QUDT_2
from edge.mapping.units import UNAMBIGUOUS_CODES

PROPERTIES: Final = "urn:sepa-edge:property:"
_CURRENCIES: Final = "http://qudt.org/vocab/currency/"
_CURRENCY: Final = re.compile("[A-Z]{3}")


class DeviceClass(NamedTuple):
    """A numeric device class."""

    property: str
    """Local name of the property; that of the included mapping files, where they have one."""
    units: tuple[str, ...]
    """Units that Home Assistant allows; "" is a value without a unit."""


_ENERGY: Final = ("J", "kJ", "MJ", "GJ", "mWh", "Wh", "kWh", "MWh", "GWh", "TWh", "cal", "kcal", "Mcal", "Gcal")
_VOLUME: Final = ("L", "mL", "gal", "fl. oz.", "m³", "ft³", "CCF", "MCF")
_MICROGRAMS: Final = ("µg/m³",)
_PRESSURE: Final = ("cbar", "bar", "hPa", "mmHg", "inHg", "inH₂O", "kPa", "mbar", "mPa", "Pa", "psi")
_VOLUME_FLOWS: Final = (
    *("m³/h", "m³/min", "m³/s", "ft³/min", "L/h", "L/min", "L/s", "gal/d", "gal/h", "gal/min", "mL/s"),
)
_DATA: Final = (
    *("bit", "kbit", "Mbit", "Gbit", "B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"),
    *("KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"),
)
_DATA_RATES: Final = (
    *("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "B/s", "kB/s", "MB/s", "GB/s", "KiB/s", "MiB/s", "GiB/s"),
)
_SPEEDS: Final = ("ft/s", "km/h", "kn", "m/s", "mph", "Beaufort")
_FALLS: Final = ("in/d", "in/h", "mm/d", "mm/h")

NUMERIC: Final[dict[str, DeviceClass]] = {
    "absolute_humidity": DeviceClass("absolute_humidity", ("g/m³", "mg/m³")),
    "apparent_power": DeviceClass("apparent_power", ("mVA", "VA", "kVA")),
    "aqi": DeviceClass("aqi", ("",)),
    "area": DeviceClass("area", ("m²", "cm²", "km²", "mm²", "in²", "ft²", "yd²", "mi²", "ac", "ha")),
    "atmospheric_pressure": DeviceClass("pressure", _PRESSURE),
    "battery": DeviceClass("battery", ("%",)),
    "blood_glucose_concentration": DeviceClass("blood_glucose_concentration", ("mg/dL", "mmol/L")),
    "carbon_dioxide": DeviceClass("co2", ("ppm",)),
    "carbon_monoxide": DeviceClass("carbon_monoxide", ("ppm", "ppb", "µg/m³", "mg/m³")),
    "conductivity": DeviceClass("conductivity", ("S/cm", "mS/cm", "µS/cm")),
    "current": DeviceClass("current", ("A", "mA")),
    "data_rate": DeviceClass("data_rate", _DATA_RATES),
    "data_size": DeviceClass("data_size", _DATA),
    "distance": DeviceClass("distance", ("km", "m", "cm", "mm", "mi", "nmi", "yd", "in", "ft")),
    "duration": DeviceClass("duration", ("d", "h", "min", "s", "ms", "µs")),
    "energy": DeviceClass("energy", _ENERGY),
    "energy_distance": DeviceClass("energy_distance", ("kWh/100km", "Wh/km", "mi/kWh", "km/kWh")),
    "energy_storage": DeviceClass("energy_storage", _ENERGY),
    "frequency": DeviceClass("frequency", ("mHz", "Hz", "kHz", "MHz", "GHz")),
    "gas": DeviceClass("gas_volume", ("L", "m³", "ft³", "CCF", "MCF")),
    "humidity": DeviceClass("humidity", ("%",)),
    "illuminance": DeviceClass("illuminance", ("lx",)),
    "irradiance": DeviceClass("irradiance", ("W/m²", "BTU/(h⋅ft²)")),
    "moisture": DeviceClass("moisture", ("%",)),
    "monetary": DeviceClass("monetary", ()),
    "nitrogen_dioxide": DeviceClass("nitrogen_dioxide", ("µg/m³", "ppm", "ppb")),
    "nitrogen_monoxide": DeviceClass("nitrogen_monoxide", ("µg/m³", "ppb")),
    "nitrous_oxide": DeviceClass("nitrous_oxide", _MICROGRAMS),
    "ozone": DeviceClass("ozone", ("µg/m³", "ppm", "ppb")),
    "ph": DeviceClass("ph", ("",)),
    "pm1": DeviceClass("pm1", _MICROGRAMS),
    "pm25": DeviceClass("pm25", _MICROGRAMS),
    "pm4": DeviceClass("pm4", _MICROGRAMS),
    "pm10": DeviceClass("pm10", _MICROGRAMS),
    "power": DeviceClass("power", ("mW", "W", "kW", "MW", "GW", "TW", "BTU/h")),
    "power_factor": DeviceClass("power_factor", ("%", "")),
    "precipitation": DeviceClass("precipitation", ("cm", "in", "mm")),
    "precipitation_intensity": DeviceClass("precipitation_intensity", _FALLS),
    "pressure": DeviceClass("pressure", _PRESSURE),
    "reactive_energy": DeviceClass("reactive_energy", ("varh", "kvarh")),
    "reactive_power": DeviceClass("reactive_power", ("mvar", "var", "kvar")),
    "signal_strength": DeviceClass("signal_strength", ("dB", "dBm")),
    "sound_pressure": DeviceClass("sound_pressure", ("dB", "dBA")),
    "speed": DeviceClass("speed", (*_SPEEDS, *_FALLS, "in/s", "mm/s")),
    "sulphur_dioxide": DeviceClass("sulphur_dioxide", ("µg/m³", "ppb")),
    "temperature": DeviceClass("temperature", ("°C", "°F", "K")),
    "temperature_delta": DeviceClass("temperature_delta", ("°C", "°F", "K")),
    "volatile_organic_compounds": DeviceClass("voc", ("µg/m³", "mg/m³")),
    "volatile_organic_compounds_parts": DeviceClass("voc", ("ppm", "ppb")),
    "voltage": DeviceClass("voltage", ("V", "mV", "µV", "kV", "MV")),
    "volume": DeviceClass("volume", _VOLUME),
    "volume_flow_rate": DeviceClass("volume_flow_rate", _VOLUME_FLOWS),
    "volume_storage": DeviceClass("volume_storage", _VOLUME),
    "water": DeviceClass("water_volume", ("L", "gal", "m³", "ft³", "CCF", "MCF")),
    "weight": DeviceClass("weight", ("kg", "g", "mg", "µg", "oz", "lb", "st")),
    "wind_direction": DeviceClass("wind_direction", ("°",)),
    "wind_speed": DeviceClass("wind_speed", _SPEEDS),
}
"""Numeric device classes."""

TEXTUAL: Final = frozenset({"date", "enum", "timestamp", "uptime"})
"""Device classes of sensors whose values are texts."""


class ScaledUnit(NamedTuple):
    """A unit of QUDT, and the factor of a value for it: 1 unless QUDT lacks the unit itself."""

    iri: str
    scale: str = "1"


_NAMES: Final = {
    "mg/m³": "MilliGM-PER-M3",
    "mVA": "MilliVA",
    "cm²": "CentiM2",
    "km²": "KiloM2",
    "mm²": "MilliM2",
    "in²": "IN2",
    "ft²": "FT2",
    "yd²": "YD2",
    "mi²": "MI2",
    "ac": "AC",
    "ha": "HA",
    "cbar": "CentiBAR",
    "mmHg": "MilliM_HG",
    "inHg": "IN_HG",
    "inH₂O": "IN_H2O",
    "mPa": "MilliPA",
    "psi": "PSI",
    "mg/dL": "MilliGM-PER-DeciL",
    "mmol/L": "MilliMOL-PER-L",
    "S/cm": "S-PER-CentiM",
    "mS/cm": "MilliS-PER-CentiM",
    "µS/cm": "MicroS-PER-CentiM",
    "kbit": "KiloBIT",
    "Mbit": "MegaBIT",
    "Gbit": "GigaBIT",
    "kB": "KiloBYTE",
    "MB": "MegaBYTE",
    "TB": "TeraBYTE",
    "PB": "PetaBYTE",
    "EB": "ExaBYTE",
    "MiB": "MebiBYTE",
    "GiB": "GibiBYTE",
    "TiB": "TebiBYTE",
    "PiB": "PebiBYTE",
    "EiB": "ExbiBYTE",
    "kbit/s": "KiloBIT-PER-SEC",
    "Gbit/s": "GigaBIT-PER-SEC",
    "kB/s": "KiloBYTE-PER-SEC",
    "GB/s": "GigaBYTE-PER-SEC",
    "mi": "MI",
    "nmi": "MI_N",
    "yd": "YD",
    "in": "IN",
    "ft": "FT",
    "µs": "MicroSEC",
    "kJ": "KiloJ",
    "MJ": "MegaJ",
    "GJ": "GigaJ",
    "MWh": "MegaW-HR",
    "GWh": "GigaW-HR",
    "TWh": "TeraW-HR",
    "cal": "CAL_TH",
    "kcal": "KiloCAL_TH",
    "mHz": "MilliHZ",
    "GHz": "GigaHZ",
    "ft³": "FT3",
    "BTU/(h⋅ft²)": "BTU_IT-PER-HR-FT2",
    "BTU/h": "BTU_IT-PER-HR",
    "mW": "MilliW",
    "MW": "MegaW",
    "GW": "GigaW",
    "TW": "TeraW",
    "mm/d": "MilliM-PER-DAY",
    "varh": "V-A_Reactive-HR",
    "mvar": "MilliVAR",
    "dBA": "DeciB_A",
    "ft/s": "FT-PER-SEC",
    "kn": "KN",
    "mph": "MI-PER-HR",
    "Beaufort": "BFT",
    "in/s": "IN-PER-SEC",
    "mm/s": "MilliM-PER-SEC",
    "µV": "MicroV",
    "kV": "KiloV",
    "MV": "MegaV",
    "mL": "MilliL",
    "gal": "GAL_US",
    "fl. oz.": "OZ_VOL_US",
    "m³/min": "M3-PER-MIN",
    "ft³/min": "FT3-PER-MIN",
    "L/h": "L-PER-HR",
    "L/s": "L-PER-SEC",
    "gal/d": "GAL_US-PER-DAY",
    "gal/h": "GAL_US-PER-HR",
    "gal/min": "GAL_US-PER-MIN",
    "mL/s": "MilliL-PER-SEC",
    "mg": "MilliGM",
    "µg": "MicroGM",
    "oz": "OZ",
    "lb": "LB",
    "st": "Stone_UK",
}
"""Names in QUDT 2 of units that the mapping language has no code for. Gallons and ounces are those of the US."""

_SCALED: Final = {
    "m³/s": ScaledUnit(f"{QUDT_1_1}CubicMeterPerSecond"),
    "mWh": ScaledUnit(f"{QUDT_1_1}Watthour", "0.001"),
    "Mcal": ScaledUnit(f"{QUDT_2}KiloCAL_TH", "1000"),
    "Gcal": ScaledUnit(f"{QUDT_2}KiloCAL_TH", "1000000"),
    "CCF": ScaledUnit(f"{QUDT_2}FT3", "100"),
    "MCF": ScaledUnit(f"{QUDT_2}FT3", "1000"),
    "in/h": ScaledUnit(f"{QUDT_2}MilliM-PER-HR", "25.4"),
    "in/d": ScaledUnit(f"{QUDT_2}MilliM-PER-DAY", "25.4"),
    "Wh/km": ScaledUnit(f"{QUDT_2}J-PER-M", "3.6"),
    "kWh/100km": ScaledUnit(f"{QUDT_2}J-PER-M", "36"),
    "KiB/s": ScaledUnit(f"{QUDT_2}BYTE-PER-SEC", "1024"),
    "MiB/s": ScaledUnit(f"{QUDT_2}BYTE-PER-SEC", "1048576"),
    "GiB/s": ScaledUnit(f"{QUDT_2}BYTE-PER-SEC", "1073741824"),
    "ZB": ScaledUnit(f"{QUDT_2}ExaBYTE", "1000"),
    "YB": ScaledUnit(f"{QUDT_2}ExaBYTE", "1000000"),
    "ZiB": ScaledUnit(f"{QUDT_2}ExbiBYTE", "1024"),
    "YiB": ScaledUnit(f"{QUDT_2}ExbiBYTE", "1048576"),
}
"""Units that QUDT lacks, as another unit, and one of QUDT 1.1 without a unit code."""

WITHOUT_UNIT: Final = frozenset({"mi/kWh", "km/kWh"})
"""Units of Home Assistant that no unit of QUDT expresses: distance per energy."""


def unit_of(text: str, device_class: str) -> ScaledUnit | None:
    """Return the unit that a device names; None if it is not known. The empty text is a value without a unit."""
    if device_class == "monetary":
        return ScaledUnit(_CURRENCIES + text) if _CURRENCY.fullmatch(text) else None
    if not text:
        return ScaledUnit(f"{QUDT_2}PH" if device_class == "ph" else f"{QUDT_1_1}Unitless")
    # Home Assistant writes the micro sign; devices also write the Greek letter, which looks the same.
    text = text.replace("\u03bc", "\u00b5")
    if text in _SCALED:
        return _SCALED[text]
    if text in _NAMES:
        return ScaledUnit(QUDT_2 + _NAMES[text])
    code = UNAMBIGUOUS_CODES.get(text)
    return None if code is None else ScaledUnit(code)
