"""Packs for LoRaWAN, Bluetooth and 433 MHz: a device counts once, and packs apply only if the settings name them.

Sources of the payloads here and in `samples/`:

- ChirpStack v4 documentation ("Event types", July 2026), and its codec for Cayenne LPP
- The Things Stack documentation ("Data Formats", "Payload formatters"), and the payload scheme of its device repository
- Theengs Decoder (tests of October 2024), and Theengs Gateway (March 2024)
- OpenMQTTGateway (documentation: "BLE gateway", "RF gateways"; messages of receivers that other projects show)
- rtl_433 (documentation and decoders, August 2026), with a weather station of its issue 1914
- BTHome 2: an advertisement of a THB1 in issue 621 of Theengs Decoder
- zigbee-herdsman-converters 26.99 (lib/exposes)

Messages of `samples/` that name a codec, a phase, units or heating are put together from the names in these sources.
"""

import json
import re

import pytest

from edge.adapters.settings import PACKS, MappingsSettings
from edge.mapping import Event, Mapper, builtin_names, load_builtin

NEW = ("chirpstack", "thethingsstack", "openmqttgateway", "rtl_433", "rtl_433_devices")
UP = "application/c0/device/0101010101010101/event/up"
DEVICE = {"deviceInfo": {"deviceName": "bench"}, "time": "2026-01-15T10:20:30Z"}


@pytest.fixture(scope="module")
def mapper():
    return Mapper(load_builtin(name) for name in NEW)


def observations(mapper, topic, message):
    """Return the readings that a new device gets by their observations."""
    readings = mapper.map(topic, json.dumps(message).encode()).readings
    return {reading.observation: reading for reading in readings if not reading.existing}


def test_the_settings_know_every_pack_and_switch_on_none_of_these():
    assert set(PACKS) == set(builtin_names())
    assert not set(MappingsSettings().packs) & set(NEW)


@pytest.mark.parametrize("strongest", [0, 1, 2])
def test_the_gateway_with_the_best_signal_gives_the_radio_values(mapper, strongest):
    received = [{"gatewayId": str(n), "rssi": -60 if n == strongest else -110 + n, "snr": n} for n in range(3)]
    readings = observations(mapper, UP, {**DEVICE, "object": {"temperature": 21}, "rxInfo": received})
    radio = {name.rpartition("/")[2]: each.value for name, each in readings.items() if "/radio/" in name}
    assert radio == {"rssi": "-60", "snr": str(strongest)}


def test_a_sensor_that_two_bluetooth_gateways_hear_has_the_same_observations(mapper):
    message = {"model_id": "LYWSDCGQ", "type": "THB", "tempc": 26, "hum": 61.4, "rssi": -71}
    heard = [
        observations(mapper, f"home/{gateway}/BTtoMQTT/{address}", message)
        for gateway, address in (("TheengsGateway", "582D3433AADF"), ("OpenMQTTGateway", "582d3433aadf"))
    ]
    assert {name for name in heard[0] if name in heard[1]} == {
        f"urn:sepa-edge:ble:582D3433AADF/{n}" for n in ("tempc", "hum")
    }
    assert [name.partition("/rssi/")[2] for each in heard for name in each if "/rssi/" in name] == [
        "TheengsGateway",
        "OpenMQTTGateway",
    ]


def test_a_transmission_that_two_433_mhz_receivers_hear_has_the_same_observations(mapper):
    message = {"model": "Prologue-TH", "id": 5, "channel": 1, "temperature_C": 21.3, "rssi": -0.1}
    attic, cellar = (observations(mapper, f"rtl_433/{host}/events", message) for host in ("attic", "cellar"))
    assert attic.keys() & cellar.keys() == {"urn:sepa-edge:rf433:Prologue-TH/1/5/temperature"}


@pytest.mark.parametrize(
    ("topic", "message", "event"),
    [
        (
            "home/G/BTtoMQTT/BC026EAABBCC",
            {"model_id": "SBBT-002C", "type": "BTN", "packet": 29, "button": 1},
            Event("29"),
        ),
        ("home/G/BTtoMQTT/BC026EAABBCC", {"model_id": "SBBT-002C", "type": "BTN", "button": 1}, Event("", 2.0)),
        ("home/G/BTtoMQTT/A4C1383EB393", {"servicedata": "4400073a01", "servicedatauuid": "fcd2"}, Event("7")),
        ("home/G/433toMQTT", {"value": 1315156, "protocol": 1}, Event("", 2.0)),
        ("rtl_433/attic/events", {"model": "Silvercrest-Remote", "button": 4}, Event("", 2.0)),
    ],
)
def test_a_button_is_an_event_that_counts_once(mapper, topic, message, event):
    (reading,) = observations(mapper, topic, message).values()
    assert reading.event == event


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("home/G/BTtoMQTT/C7FAAD132C00", {"id": "c7:fa:ad:13:2c:00", "rssi": -68, "servicedata": "dead"}),
        ("home/G/BTtoMQTT/58782076BC24", {"model_id": "IBEACON", "type": "BCON", "rssi": -79}),
        ("home/G/BTtoMQTT/58782076BC25", {"model_id": "MS-CDP", "type": "RMAC", "rssi": -79}),
        ("home/G/BTtoMQTT/58782076BC26", {"model_id": "APPLEDEVICE", "type": "TRACK", "prmac": 1, "rssi": -79}),
        ("rtl_433/attic/events", {"model": "Renault", "type": "TPMS", "id": "1a2b3c", "pressure_kPa": 230}),
        (
            "home/G/RTL_433toMQTT/Renault/1a2b3c",
            {"model": "Renault", "type": "TPMS", "id": "1a2b3c", "pressure_kPa": 230},
        ),
    ],
)
def test_devices_that_change_their_address_or_pass_by_give_no_observations(mapper, topic, message):
    mapped = mapper.map(topic, json.dumps(message).encode())
    assert mapped.ignored
    assert not mapped.readings


@pytest.mark.parametrize("data", ["4", "40", "4002", "4002c8", "40zz", "40" + "00" * 300, "4053ff41"])
def test_a_broken_bthome_advertisement_gives_no_wrong_value(mapper, data):
    message = {"servicedata": data, "servicedatauuid": "fcd2", "rssi": -54}
    readings = observations(mapper, "home/G/BTtoMQTT/A4C1383EB393", message)
    assert not [name for name in readings if "temperature" in name]


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".", "<urn:x>", "x" * 5000, "\u0000", "é"])
def test_a_hostile_name_stays_within_its_iri(mapper, name):
    message = {**DEVICE, "object": {name: 1, "nested": {name: 2}, name + "x": {"value": 3, "unit": name}}}
    for reading in mapper.map(UP, json.dumps(message).encode()).readings:
        assert reading.observation.startswith("urn:sepa-edge:lorawan:0101010101010101/")
        assert "/../" not in reading.observation
        assert not set('<>" \u0000') & set(reading.observation)
    message = {"model": name, "id": name, "temperature_C": 1}
    for reading in mapper.map("rtl_433/attic/events", json.dumps(message).encode()).readings:
        assert reading.observation.startswith("urn:sepa-edge:rf433:")
        assert not set('<>" \u0000') & set(reading.observation)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        *(({"encr": value}, [("true", False)]) for value in (2, True, "2")),
        *(({"encr": value}, [("false", True)]) for value in (0, False, "False", "")),
        ({}, [("false", True)]),
        ({"encr": None}, []),
    ],
)
def test_a_sensor_is_encrypted_for_the_gateway_whose_decoder_lacks_its_key(mapper, message, found):
    """`found`: value of `encrypted`, and whether it only changes an observation that the graph has."""
    readings = mapper.map(BLE, json.dumps({"model_id": "SBBT-002C", "type": "BTN", **message}).encode()).readings
    encrypted = [each for each in readings if each.observation.endswith("AABBCCDDEEFF/encrypted/G")]
    assert [(each.value, each.existing) for each in encrypted] == found


def test_a_normalized_quantity_is_not_read_again_from_the_decoded_payload(mapper):
    uplink = {
        "decoded_payload": {"temperature": -21.3, "battery": 3250},
        "normalized_payload": [{"air": {"temperature": -21.3}}],
    }
    message = {"end_device_ids": {"application_ids": {"application_id": "app1"}}, "uplink_message": uplink}
    readings = observations(mapper, "v3/app1@ttn/devices/dev1/up", message)
    assert sorted(name.partition("dev1/")[2] for name in readings) == ["battery", "normalized/air/temperature"]


RTL = "rtl_433/attic/events"
BLE = "home/G/BTtoMQTT/AABBCCDDEEFF"
ACCELERATION = {"type": "ACEL", "accz": 1015}


@pytest.mark.parametrize(
    ("topic", "message", "name", "unit"),
    [
        (RTL, {"model": "IKEA-Sparsnas", "id": 1, "pulses_per_kWh": 1000}, "pulses_per_kWh", "Unitless"),
        (RTL, {"model": "IKEA-Sparsnas", "id": 1, "cumulative_kWh": 12.5}, "cumulative", "Kilowatthour"),
        (RTL, {"model": "IKEA-Sparsnas", "id": 1, "pulses": 1000}, "pulses", "Unitless"),
        (RTL, {"model": "Revolt-NC5462", "id": 1, "power_factor_VA": 0.9}, "power_factor_VA", "Unitless"),
        (RTL, {"model": "Revolt-ZX7717", "id": 1, "apparentpower_VA": 90}, "apparentpower", "V-A"),
        ("rtl_433/attic/devices/IKEA-Sparsnas/1/pulses_per_kWh", 1000, "pulses_per_kWh", "Unitless"),
        ("rtl_433/attic/devices/IKEA-Sparsnas/1/cumulative_kWh", 12.5, "cumulative", "Kilowatthour"),
        ("rtl_433/attic/devices/Revolt-NC5462/1/power_factor_VA", 0.9, "power_factor_VA", "Unitless"),
        (RTL, {"model": "Auriol-4LD5661", "id": 1, "rain_mm": 3.9, "rain": 13}, "rain", "Millimeter"),
        (RTL, {"model": "Auriol-4LD5661", "id": 1, "rain_mm": 3.9, "rain": 13}, "rain_count", "Unitless"),
        ("rtl_433/attic/devices/Auriol-4LD5661/1/rain", 13, "rain_count", "Unitless"),
        ("rtl_433/attic/devices/Auriol-4LD5661/1/rain_mm", 3.9, "rain", "Millimeter"),
        (BLE, {"model_id": "RuuviTag_RAWv2", **ACCELERATION}, "accz", "M-PER-SEC2"),
        (BLE, {"model_id": "K6P", "tempc": 21}, "tempc", "DegreeCelsius"),
        (BLE, {"model_id": "K9", **ACCELERATION}, "accz", "Unitless"),
        (BLE, {"model_id": "KSensor", **ACCELERATION}, "accz", "Unitless"),
    ],
)
def test_the_unit_is_that_of_the_decoder_of_the_device(mapper, topic, message, name, unit):
    readings = observations(mapper, topic, message)
    (reading,) = [each for each in readings.values() if each.observation.endswith(f"/{name}")]
    assert re.split("[/#]", reading.unit or "")[-1] == unit


def test_a_meter_with_a_type_is_a_device_and_no_tyre(mapper):
    message = {"model": "Wireless-MBus", "id": 12345678, "type": 7, "inst_volume_0": "12.345 m3"}
    assert observations(mapper, RTL, message).keys() == {
        "urn:sepa-edge:rf433:Wireless-MBus/12345678/inst_volume_0",
    }


def test_a_dimmer_reports_its_direction_and_its_steps(mapper):
    message = {"servicedata": "4000073c0203", "servicedatauuid": "fcd2"}
    readings = observations(mapper, BLE, message)
    assert {name.rpartition("/")[2]: (each.value, each.event) for name, each in readings.items()} == {
        "dimmer": ("right", Event("7")),
        "dimmer_steps": ("3", None),
    }


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        ({}, {"batteryLevel", "margin"}),
        ({"batteryLevelUnavailable": True}, {"margin"}),
        ({"externalPowerSource": True}, {"externalPowerSource", "margin"}),
        ({"externalPowerSource": False}, {"batteryLevel", "externalPowerSource", "margin"}),
    ],
)
def test_a_battery_without_a_level_is_not_empty(mapper, missing, names):
    message = {**DEVICE, "margin": 10, "batteryLevel": 0, **missing}
    readings = observations(mapper, UP.replace("/up", "/status"), message)
    assert {name.rpartition("/")[2] for name in readings} == names


@pytest.mark.parametrize(
    ("event", "matched", "ignored"), [("up", False, False), ("join", True, True), ("log", True, True)]
)
def test_an_uplink_in_another_format_is_reported_as_unmapped(mapper, event, matched, ignored):
    mapped = mapper.map(UP.replace("/up", f"/{event}"), b"\x0a\x10\xff\xfe")
    assert (mapped.matched, mapped.ignored) == (matched, ignored)


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ({"battery_voltage": 3.6}, {"battery_voltage": "3.6"}),
        ({"battery_voltage": 3600}, {}),
        ({"barometric_pressure": 1013.2}, {"barometric_pressure": "1013.2"}),
        ({"barometric_pressure": 101320}, {}),
        ({"pressure": 1013, "humidity": 40}, {"pressure": "1013", "humidity": "40"}),
        ({"pressure": 101.3, "humidity": 40}, {"humidity": "40"}),
    ],
)
def test_a_lorawan_value_in_another_unit_is_refused(mapper, values, stored):
    uplink = {
        "end_device_ids": {"application_ids": {"application_id": "a"}},
        "uplink_message": {"decoded_payload": values},
    }
    for topic, message in ((UP, {**DEVICE, "object": values}), ("v3/a@ttn/devices/d/up", uplink)):
        mapped = mapper.map(topic, json.dumps(message).encode())
        assert {each.observation.rpartition("/")[2]: each.value for each in mapped.readings} == stored
        assert len(mapped.problems) == len(values) - len(stored)
