"""Random SPARQL texts that differ only in their constants, which include unusual ones."""

from __future__ import annotations

import random
import re

EX = "http://example.org/"
PREFIX = f"PREFIX : <{EX}> PREFIX e: <{EX}e> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>\n"

IRIS = (
    *("<http://example.org/a>", "<a>", "<>", "<../x>", "<#f>", "<http://[bad>", "<a\\u0041>", "<a{b>"),
    *("<http://a/./b/../c>", ":a", ":", "e:x", "e:41", ":a.b", ":a-", ":-5", ":5", ":a%41", ":a\\-b", "u:x"),
    *(":é", "é:x", "a.b:c", ":a.5", "a", ":a:b", "xsd:integer", "<é>", "<HTTP://A/>", "<a:b", "<a b>", "^:a"),
    *(":a#c\n", ":a.", "?v", ":a/:b", "<x:\ud800>"),
)
LITERALS = (
    *('"x"', "'x'", '""', "''", '"""a"b"""', "'''a'''", '"a\\nb"', '"a\\qb"', '"x"@en', '"x"@EN-gb', '"x"@x'),
    *('"x"@en--ltr', '"01"^^xsd:integer', '"x"^^:t', '"x"^^u:t', '"x"^^<rel>', '"x"^^xsd:integer'),
    *('"1.50"^^xsd:decimal', '"\\u0022"', '"\\uD800"', '"a#b"', '"é"', '"^^"', '"x^^"^^:t', '"\'"', "'\"'"),
    *("1", "01", "1.5", "1.50", "1e3", "1.e3", ".5", "5.", "0", "-5", "+5", "-0.0", "-0", '-"x"', '+"x"'),
    *("true", "99999999999999999999", "1.5E-7", "5e", "5.5.5", "\"x'@en", "'<'", '"<a>"'),
    *('"2020-01-01T00:00:00+00:00"^^xsd:dateTime', '"x" @en', '"x"^^ :t', '"a b"', "- 5", "'a\x00'"),
    *("'\ud800'", '"a\nb"', "5#c\n", "?v", "?v-5", "-:a"),
)
SPACES = ("", " ", " ", " ", " ", "\n", "\t", " #c 'x\n", "#<\n", "\u00a0", "\x00")
PATTERNS = (
    "§s§i§s§i§s§l§s.",
    "§s§i§s§i§s§i§s.",
    "?v§s§i§s§l§s,§s§l§s;§s§i§s§l§s.",
    "?v§s^§i§s/§s§i§s?w§s.",
    "?v§s§i§s?w§s.",
    "FILTER(§s?v§s<§s§l§s&&§s?w§s>§s§l§s)",
    "FILTER(§s?v§s<§s§i§s||§s?w§s>§s§i§s)",
    "FILTER(§s?v§s=§s§i§s)",
    "FILTER(§s?v§s-§l§s=§s§l§s*§s§l§s)",
    "FILTER(§i§s(§s?v§s)§s!=§s§l§s)",
    "BIND(§s?v§s+§s§l§s AS ?z)",
    "VALUES ?v {§s§i§s§l§s}",
    "GRAPH§s§i§s{§s?v§s§i§s?w§s}",
)


def texts(seed: int) -> list[str]:
    """Return some texts that differ only in their constants."""
    source = random.Random(seed)
    pattern = " ".join(source.choice(PATTERNS) for _ in range(source.randint(1, 3)))
    spaces = SPACES if source.random() < 0.3 else SPACES[1:8]
    pattern = re.sub("§s", lambda _: source.choice(spaces), pattern)
    few = source.randint(1, 5)  # a text with several unusual constants is seldom valid
    choices = {"i": (":b", *source.sample(IRIS, few)), "l": ("2", *source.sample(LITERALS, few))}

    def constant(slot: re.Match[str]) -> str:
        return source.choice(choices[slot[0][1] if source.random() < 0.9 else source.choice("il")])

    return [
        f"{PREFIX}SELECT * {{ {re.sub('§[il]', constant, pattern)} }} LIMIT {source.randint(1, 2)}" for _ in range(6)
    ]
