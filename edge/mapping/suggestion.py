"""Suggestion of a mapping for one message: a text to paste into a mapping file and adapt.

A single message does not say what varies. Levels of a topic that look like an identifier become captures, and so do
members and items of equal form. Names that are known from many devices give units, times and metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import quote

from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.payload_leaves import Leaf, NamedItems, iri_part, leaves, named_items, snake, step
from edge.mapping.times import BadTimeError, time_format
from edge.mapping.values import JsonNumber

_MOST_READINGS: Final = 40
_MOST_LISTS: Final = 20
_LONGEST_TOPIC: Final = 65_535
_SUFFIXES: Final = {
    **{unit.lower(): unit for unit in ("mV", "V", "mA", "A", "W", "kW", "Wh", "kWh", "Pa", "hPa", "kPa", "mbar", "Hz")},
    **{unit: unit for unit in ("lx", "ppm", "ppb", "mm", "cm", "m", "km", "g", "kg", "l", "s", "ms", "min", "h")},
    "c": "°C",
    "f": "°F",
    "k": "K",
    "pct": "%",
    "percent": "%",
    "dbm": "dBm",
    "db": "dB",
}
"""Last words of names that are units, as in `battery_mv`."""
_NUMBERLESS: Final = re.compile(r"(.*_)?(factor|ratio|count|index|exponent|scale|type|mode|class)")
"""Names of numbers without a unit, or with an unknown one."""
_UNITS: Final = (
    (r"tempf|fahrenheit", "°F"),
    (r"temp(erature)?|tempc|celsius|dew_?point", "°C"),
    (r"hum(idity)?|moisture|batt(ery)?|soc|level", "%"),
    (r"volt(age)?|bat_?v|vbat|vdd", "V"),
    (r"current|amps?", "A"),
    (r"power|watts?", "W"),
    (r"energy|consumption", "kWh"),
    (r"pressure|barometer", "hPa"),
    (r"illuminance|lux|light_?level", "lx"),
    (r"e?co2", "ppm"),
    (r"pm_?(1|2_?5|10)(_?0)?", "µg/m³"),
    (r"rssi|signal", "dBm"),
    (r"snr", "dB"),
)
"""Words of names, and the unit that such values usually have."""
_TIMES: Final = frozenset({"time", "timestamp", "ts", "at", "date", "datetime", "received_at", "last_seen", "utc"})
_CONTENT: Final = ("object", "decoded_payload", "decoded", "payload", "values", "readings", "sensors", "measurements")
"""Members that have the values, if other members describe their transmission."""
_METADATA: Final = re.compile(
    r"(.*_)?(id|eui|dev_?eui|addr|address|mac|uuid|version|f_?cnt|f_?port|dr|adr|confirmed|link_?quality|counter|seq)"
    r"|rx_?info|tx_?info|(end_)?device(_ids?|_info)?|update"
)
_ACTIONS: Final = frozenset(
    {"state", "status", "up", "uplink", "event", "events", "sensor", "telemetry", "tele", "stat", "data", "json", "raw"}
)
"""Levels of a topic that say what a message is, and not what it is about."""
_IDENTIFIER: Final = re.compile(r"(?!v[0-9]+$)[A-Za-z0-9_:.-]*[0-9][A-Za-z0-9_:.-]*")
"""A level with a digit, which is not the version of a protocol."""
_KIND: Final = re.compile(r"([a-z]{2,}?)s?")
"""A level that can name the identifier after it, as in `device/0A1B` or `rooms/3`."""
_TAKEN: Final = frozenset({"topic", "member", "name", "key"})
"""Captures that are built in, or that paths of the suggestion have."""
_COMMA_NUMBER: Final = re.compile(r"[-+]?[0-9]+,[0-9]+")
_TRUTHS: Final = frozenset({"on", "off", "true", "false"})


class _Topic(NamedTuple):
    pattern: str
    observation: str
    """Beginning of the IRIs of observations."""
    subject: str
    """Name of the thing that the message is about, for labels."""


def suggest(topic: str, payload: bytes) -> str | None:
    """Return a mapping (TOML) for this message, to paste into a file and adapt.

    None if no message can have the topic: it is empty, too long, or has wildcards.
    """
    if not 0 < len(topic) <= _LONGEST_TOPIC or any(character in topic for character in "+#\0"):
        return None
    message = PayloadMessage(topic, payload)
    try:
        document = message.document
    except PayloadError:
        document = None
    if isinstance(document, list) and any(isinstance(each, dict) and {"n", "bn"} & each.keys() for each in document):
        place = _place(topic, scalar=False)
        lines = ['payload = "senml"', f'observation = "{place.observation}/{{name}}"', 'label = "{name}"']
    elif isinstance(document, dict | list):
        return "\n".join("\n".join(["[[mapping]]", *lines]) + "\n" for lines in _tables(topic, document))
    else:
        place = _place(topic, scalar=True)
        lines = _text_lines(place, topic, message)
    return "\n".join(["[[mapping]]", f"topic = {_quoted(place.pattern)}", *lines]) + "\n"


def _place(topic: str, *, scalar: bool) -> _Topic:
    """Generalise a topic. `scalar`: its last level says what the value is."""
    levels = topic.split("/")
    varying = [number for number, level in enumerate(levels) if _IDENTIFIER.fullmatch(level)] if len(levels) > 1 else []
    identified = bool(varying)
    if not varying:
        # A capture at the first level would match the topics of everything else.
        others = range(1, len(levels) - 1 if scalar else len(levels))
        varying = [number for number in others if levels[number].lower() not in _ACTIONS and levels[number].strip(".")][
            -1:
        ]
    pattern: list[str] = []
    base: list[str] = []
    names: list[str] = []
    for number, level in enumerate(levels):
        if number in varying:
            name = _capture(levels[number - 1] if number and identified else "", names)
            names.append(name)
            pattern.append(f"{{{name}}}")
            base.append(f"{{{name}}}")
        else:
            pattern.append(level.replace("{", "{{").replace("}", "}}"))
            if word := iri_part(level):
                base.append(word)
    subject = f"{{{names[-1]}}}" if names else "{topic}"
    return _Topic("/".join(pattern), "edge:" + ("/".join(base) or "message"), subject)


def _capture(before: str, names: Sequence[str], otherwise: str = "device") -> str:
    """Return a name for a capture: the level before it, as in `device/0A1B`, or "device"."""
    kind = _KIND.fullmatch(before) if before not in _ACTIONS else None
    name = kind[1] if kind is not None and kind[1] not in _TAKEN else otherwise
    while name in names:
        name += "_"
    return name


def _text_lines(place: _Topic, topic: str, message: PayloadMessage) -> list[str]:
    lines = [f'observation = "{place.observation}"']
    try:
        text = message.text
    except PayloadError:
        return [*lines, 'fields = [{ name = "value", type = "u16" }]', 'path = "value"']
    what = topic.rpartition("/")[2] or "value"
    if text.lower() in _TRUTHS:
        lines.append('datatype = "boolean"')
    elif not re.search("[0-9]", text):
        lines.append('datatype = "string"')
    else:
        if _COMMA_NUMBER.search(text) and "." not in text:
            lines.append("decimal_comma = true")
        lines.append(_unit_line(_unit(what)))
    label = what.replace("{", "{{").replace("}", "}}")
    return [*lines, f"label = {_quoted(f'{label} of {place.subject}')}"]


def _unit_line(unit: str | None) -> str:
    return '# unit = "..."  # edge mapping units' if unit is None else f'unit = "{unit}"  # a guess by the name'


def _tables(topic: str, document: object) -> list[list[str]]:
    """Return the lines of the mappings of a JSON payload: one for each list of named items, and one for the rest."""
    place = _place(topic, scalar=False)
    time = next(_time_paths(document), None)
    start, content = _content(document)
    tables = []
    for items in islice(named_items(content, start), _MOST_LISTS):
        found = list(leaves(items.items))
        values = _values([leaf for leaf in found if leaf.path != items.name], next(_time_paths(items.items[0]), None))
        if values:
            tables.append(_item_lines(place, items, values, time))
    rest = _values(list(leaves([content], start, named=True)), time, strict=bool(tables))
    if rest or not tables:
        tables.insert(0, _document_lines(place, rest, time))
    return [[f"topic = {_quoted(place.pattern)}", 'payload = "json"', *lines] for lines in tables]


def _values(found: Sequence[Leaf], time: str | None, *, strict: bool = False) -> list[Leaf]:
    """Return the leaves that are probably values. `time`: path of the time. `strict`: if there are none, no others."""
    wanted = [leaf for leaf in found if not _describes(leaf, time)]
    # Texts are rarely values, except those of switches.
    values = [leaf for leaf in wanted if leaf.number is not None or _is_truth(leaf.value)]
    return values if strict else values or wanted or list(found)


def _document_lines(place: _Topic, found: Sequence[Leaf], time: str | None) -> list[str]:
    chosen = found[:_MOST_READINGS]
    members = [leaf.member for leaf in chosen]
    # Words of IRIs by leaf; those of a member of its own are {member}.
    own = [
        None if members.count(leaf.member) == 1 and _is_member(leaf) else "/".join(leaf.names) or "value"
        for leaf in chosen
    ]
    own = _distinct_names(chosen, own)
    lines = []
    if None in own or not chosen:
        lines = [f'observation = "{place.observation}/{{member}}"', f'label = "{{member}} of {place.subject}"']
    if time is not None:
        lines.append(f"time = {_quoted(time)}")
    readings = [
        _reading(leaf, f"{place.observation}/{rest}" if rest else None, f"{rest} of {place.subject}")
        for leaf, rest in zip(chosen, own, strict=True)
    ]
    return [*lines, *_reading_lines(chosen, readings, len(found))]


def _item_lines(place: _Topic, items: NamedItems, found: Sequence[Leaf], time: str | None) -> list[str]:
    """Return the lines of a mapping that reads each of these items. `time`: path of the time of the whole payload."""
    name = _capture(items.names[-1] if items.names else "", re.findall(r"[A-Za-z_]\w*(?=\})", place.pattern), "item")
    base = "/".join((place.observation, *items.names, f"{{{name}}}"))
    chosen = found[:_MOST_READINGS]
    lines = [f"each = {_quoted(f'{items.path}[*]')}", f"captures = {{ {name} = {_quoted(step(items.name))} }}"]
    own_time = next(_time_paths(items.items[0]), None)
    if own_time is not None or time is not None:
        lines.append(f"time = {_quoted(own_time if own_time is not None else f'$.{time}')}")
    readings = []
    for leaf in chosen:
        rest = "/".join(leaf.names)
        reading = _reading(leaf, f"{base}/{rest}", f"{rest} of {{{name}}}")
        # A single reading would be required by default.
        optional = len(chosen) == 1 and not leaf.always
        readings.append(reading.replace(" },", ", required = false },") if optional else reading)
    return [*lines, *_reading_lines(chosen, readings, len(found))]


def _is_member(leaf: Leaf) -> bool:
    """Whether the last step of a path is the name of a member, and not a number."""
    captured = any(name.startswith("{") for name in leaf.names)
    return bool(leaf.names) and leaf.names[-1] == iri_part(leaf.member) and not captured and not leaf.member.isdigit()


def _distinct_names(chosen: Sequence[Leaf], own: Sequence[str | None]) -> list[str | None]:
    """Return words of IRIs without those that {member} gives for another value."""
    members = {quote(leaf.member, safe=":") for leaf, rest in zip(chosen, own, strict=True) if rest is None}
    found: list[str | None] = []
    for rest in own:
        word = rest
        while word is not None and (word in members or (word != rest and word in own)):
            word += "-value"
        found.append(word)
    return found


def _reading(leaf: Leaf, observation: str | None, label: str) -> str:
    keys = [f"path = {_quoted(leaf.path or '$')}"]
    if observation is not None:
        keys += [f'observation = "{observation}"', f'label = "{label}"']
    if unit := _leaf_unit(leaf):
        keys.append(f'unit = "{unit}"')
    if leaf.scale is not None:
        keys.append(f"{leaf.scale[0]} = {_quoted(leaf.scale[1])}")
    if leaf.number is None:
        keys.append(f'datatype = "{"boolean" if _is_truth(leaf.value) else "string"}"')
    return f"  {{ {', '.join(keys)} }},"


def _reading_lines(chosen: Sequence[Leaf], readings: Sequence[str], number: int) -> list[str]:
    lines = ["readings = [  # units are guesses by the names" if any(map(_leaf_unit, chosen)) else "readings = ["]
    lines += readings or ['  { path = "{key}", datatype = "auto" },']
    if number > len(chosen):
        lines.append(f"  # {number - len(chosen)} more values are left out")
    return [*lines, "]"]


def _describes(leaf: Leaf, time: str | None) -> bool:
    """Whether a leaf is the time of a value, or says how the message came."""
    name = snake(leaf.member)
    return leaf.path == time or name in _TIMES or _METADATA.fullmatch(name) is not None


def _content(document: object) -> tuple[str, object]:
    """Return the part of a document that has the values, and the path to it."""
    if isinstance(document, dict):
        for name in _CONTENT:
            part = document.get(name)
            if isinstance(part, dict) and any(isinstance(value, JsonNumber | bool | dict) for value in part.values()):
                return name, part
            # The Things Stack has the decoded payload within the message.
            if name == _CONTENT[0]:
                message = document.get("uplink_message")
                if isinstance(message, dict) and isinstance(message.get("decoded_payload"), dict):
                    return "uplink_message.decoded_payload", message["decoded_payload"]
    return "", document


def _time_paths(document: object) -> Iterator[str]:
    if not isinstance(document, dict):
        return
    form = time_format("auto", None)
    for key, value in document.items():
        if snake(key) in _TIMES and isinstance(value, str):
            try:
                form.parse(value)
            except BadTimeError:
                continue
            yield key


def _is_truth(value: object) -> bool:
    return isinstance(value, bool) or str(value).lower() in _TRUTHS


def _leaf_unit(leaf: Leaf) -> str | None:
    number = leaf.number
    if number is None:
        return None
    unit = next((unit for name in (leaf.member, *reversed(leaf.names)) if (unit := _unit(name))), None)
    # A battery that has 3.1 of something has volts.
    return "V" if unit == "%" and "batt" in leaf.path.lower() and re.fullmatch(r"[0-5](\.[0-9]+)?", number) else unit


def _unit(name: str) -> str | None:
    """Return the unit that values with this name usually have."""
    word = snake(name)
    if _NUMBERLESS.fullmatch(word):
        return None
    if (suffix := word.rpartition("_")[2]) in _SUFFIXES and suffix != word:
        return _SUFFIXES[suffix]
    return next((unit for words, unit in _UNITS if re.fullmatch(rf"(.*_)?({words})(_.*)?", word)), None)


def _quoted(text: str) -> str:
    # TOML also requires an escape for U+007F. The other ones would control a terminal.
    return re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))
