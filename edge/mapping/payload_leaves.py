"""Values of a JSON payload for suggested mappings: their paths, items of equal form, names of items, and scales."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from edge.mapping.values import JsonNumber, payload_factor, plain_text

_DEEPEST: Final = 8
_LONGEST_NAME: Final = 200
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NAMES: Final = ("name", "id", "key", "sensor", "device", "channel", "label", "address", "addr", "mac", "eui", "type")
"""Members that name an item, in this order."""
_FACTORS: Final = ("scale", "factor", "multiplier", "scale_factor", "scaling")
_EXPONENTS: Final = ("exponent", "exp", "scale10", "pow10", "sf")
_OWN_FACTORS: Final = ("scale", "multiplier", "scaling")
_OWN_EXPONENTS: Final = ("exponent", "sf", "scale10")
_VALUES: Final = frozenset({"value", "val", "v", "raw", "reading"})
"""Names of a value that the general scale of its object is for."""


class Leaf(NamedTuple):
    """A value in a payload, or the same value of several items."""

    path: str
    names: tuple[str, ...]
    """Member names and captures on the path, in the form for IRIs."""
    member: str
    """Last member name on the path; empty if there is none."""
    value: object
    scale: tuple[str, str] | None = None
    """Key and path for the scale in the same object."""
    always: bool = True
    """Whether each of the items has it."""

    @property
    def number(self) -> str | None:
        """Its number, which may be written as a text; None if it is something else."""
        return self.value if isinstance(self.value, str) and _NUMBER.fullmatch(self.value) else None


class NamedItems(NamedTuple):
    """A list of objects that have a name each."""

    path: str
    names: tuple[str, ...]
    name: str
    """Member with the name."""
    items: tuple[dict[str, object], ...]


def leaves(
    nodes: Sequence[object], path: str = "", names: tuple[str, ...] = (), member: str = "", *, named: bool = False
) -> Iterator[Leaf]:
    """Yield the values of an object or list. `nodes`: it, then others of equal form, which the path leads to as well.

    `named`: without those of `named_items`.
    """
    # The depth is bounded, because the payload comes from a device.
    if len(names) > _DEEPEST:
        return
    node = nodes[0]
    if isinstance(node, dict):
        yield from _members([each for each in nodes if isinstance(each, dict)], path, names, member, named=named)
    elif isinstance(node, list):
        if named and _name_of(node) is not None:
            return
        same = _same([each for one in nodes if isinstance(one, list) for each in one], len(node))
        if same and "{i}" not in names:
            yield from leaves(same, f"{path}[{{i}}]", (*names, "{i}"), member)
        else:
            for index, value in enumerate(node):
                yield from leaves([value], f"{path}[{index}]", (*names, str(index)), member)
    elif isinstance(node, bool | JsonNumber | str):
        yield Leaf(path, names, member, node)


def _members(
    objects: Sequence[dict[str, object]], path: str, names: tuple[str, ...], member: str, *, named: bool
) -> Iterator[Leaf]:
    """Yield the values of an object, or of several, which may have different members."""
    same = _same([each for one in objects for each in one.values()], len(objects[0]))
    if same and "{key}" not in names:
        yield from leaves(same, _joined(path, "{key}"), (*names, "{key}"), member)
        return
    keys = dict.fromkeys(key for one in objects for key in one)
    scales = _scales(objects)
    used = {path.removeprefix("@.") for _, path in scales.values()}
    for key, word in _words(keys):
        parts = [one[key] for one in objects if one.get(key) is not None]
        if key in used or not parts:
            continue
        for leaf in leaves(parts, _joined(path, step(key)), (*names, word), key, named=named):
            scale = leaf.scale if isinstance(parts[0], dict | list) else scales.get(key)
            yield leaf._replace(scale=scale, always=leaf.always and len(parts) == len(objects))


def named_items(node: object, path: str = "", names: tuple[str, ...] = ()) -> Iterator[NamedItems]:
    """Yield the lists of named items, to which a path of member names leads."""
    if isinstance(node, list) and (name := _name_of(node)) is not None:
        yield NamedItems(path, names, name, tuple(node))
    elif isinstance(node, dict) and len(names) < _DEEPEST and not _same([*node.values()], len(node)):
        for key, word in _words(node):
            yield from named_items(node[key], _joined(path, step(key)), (*names, word))


def iri_part(name: str) -> str:
    """Return a name in the form that it has in an IRI; it may be empty."""
    word = re.sub(r"[^\w-]+", "-", name).strip("-")
    # Letters of other alphabets are percent-encoded, as in captures.
    return quote(word) if word.isprintable() else ""


def snake(name: str) -> str:
    """Return a name in snake case: `deviceInfo` is `device_info`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _words(node: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys of an object that a path can have, and the word for each in IRIs, which no other has."""
    taken: set[str] = set()
    for key in node:
        # A path cannot contain these characters, and an IRI none of these names.
        if not key.strip(".") or not key.isprintable() or any(character in key for character in '"\\'):
            continue
        word = free_word(key, taken)
        taken.add(word)
        yield key, word


def free_word(key: str, taken: Container[str]) -> str:
    """Return a word for a key in IRIs that is not taken."""
    word = iri_part(key)
    if word and word not in taken:
        return word
    # Of "a b" and "a-b", the second one keeps its blanks and signs.
    quoted = quote(key, safe="")
    if quoted not in taken:
        return quoted
    word = word or quoted
    while word in taken:
        word += "-"
    return word


def step(key: str) -> str:
    """Return a member name in the form that it has in a path."""
    return key if re.fullmatch(r"[A-Za-z0-9_:\-]+", key) else "[" + json.dumps(key, ensure_ascii=False) + "]"


def _joined(path: str, step: str) -> str:
    return f"{path}.{step}" if path and not step.startswith("[") else path + step


def _same(parts: Sequence[object], count: int) -> list[dict[str, object]]:
    """Return several objects with the same members; empty if they differ. `count`: those of one object or list."""
    objects = [each for each in parts if isinstance(each, dict)]
    equal = (
        len(objects) == len(parts)
        and count > 1
        and objects[0]
        and all(objects[0].keys() == each.keys() for each in objects)
    )
    return objects if equal else []


def _name_of(items: Sequence[object]) -> str | None:
    """Return the member that names the items of a list: each has another name. None if there is none."""
    if len(items) < 2 or not all(isinstance(each, dict) for each in items):
        return None
    keys: list[str] = list(items[0]) if isinstance(items[0], dict) else []
    for key in (key for word in _NAMES for key in keys if snake(key) == word):
        texts = [_text(each.get(key)) for each in items if isinstance(each, dict)]
        if all(texts) and len(set(texts)) == len(items):
            return key
    return None


def _text(value: object) -> str:
    """Return the text of a name that can be a part of an IRI; else an empty text."""
    text = plain_text(value) if isinstance(value, str) else ""
    return text if text.strip(".") and len(text) <= _LONGEST_NAME and text.isprintable() else ""


def _scales(objects: Sequence[dict[str, object]]) -> dict[str, tuple[str, str]]:
    """Return the keys and paths of the scales that each of these objects has for a value, by the key of the value."""
    # By name, because an object of a hostile message can have thousands of members.
    numbers = {snake(key): key for key, value in objects[0].items() if _is_number(value)}
    found = {}
    for word, key in numbers.items():
        if word in (*_FACTORS, *_EXPONENTS) or not all(_is_number(one.get(key)) for one in objects):
            continue
        general = len(numbers) == 2 or word in _VALUES
        factors = [*(f"{word}_{end}" for end in _OWN_FACTORS), *(_FACTORS if general else ())]
        exponents = [*(f"{word}_{end}" for end in _OWN_EXPONENTS), *(_EXPONENTS if general else ())]
        for name in (*factors, *exponents):
            other = numbers.get(name)
            # A path cannot contain other characters.
            if other is None or other == key or not re.fullmatch(r"[A-Za-z0-9_\-]+", other):
                continue
            kind = _kind([one.get(other) for one in objects], factor=name in factors)
            if kind is not None:
                found[key] = kind, f"@.{other}"
                break
    return found


def _kind(factors: Sequence[object], *, factor: bool) -> str | None:
    """Return the key for these scales of several objects; None if one of them cannot be used."""
    if factor and _usable(factors, power=False) and all(float(str(each)) > 0 for each in factors):
        return "scale_from"
    # A factor that is zero or negative is an exponent: -1 stands for tenths.
    return "scale10_from" if _usable(factors, power=True) else None


def _usable(factors: Sequence[object], *, power: bool) -> bool:
    return all(payload_factor(each, power=power) is not None for each in factors)


def _is_number(value: object) -> bool:
    return isinstance(value, str) and _NUMBER.fullmatch(value) is not None
