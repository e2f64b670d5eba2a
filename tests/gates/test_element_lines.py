"""Elements as lines of N-Quads with times: what a message means, and the errors of others."""

from __future__ import annotations

import re

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.gates.ws.element_lines import MAX_ELEMENTS, read_elements
from edge.protocol.errors import EdgeError, InvalidRequest, TooLarge

NODE = ox.NamedNode("urn:a")
TIME = 1_900_000_000_000_000


def quad(value):
    return f'<urn:a> <urn:a> "{value}" .'


def triple(value):
    return ox.Triple(NODE, NODE, ox.Literal(value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (quad("x"), [(("x",), None)]),
        (f"{quad('x')}\n{quad('y')}\n", [(("x", "y"), None)]),
        (f"{quad('x')}\n{quad('x')}\n", [(("x",), None)]),
        (f"# comment\n\n{quad('x')} # another\n", [(("x",), None)]),
        (f"@{TIME}\n{quad('x')}", [(("x",), TIME)]),
        (f"@2030-03-17T17:46:40Z\n{quad('x')}", [(("x",), TIME)]),
        (f"@ 2030-03-17T18:46:40+01:00 \r\n{quad('x')}\r\n", [(("x",), TIME)]),
        (
            f"{quad('x')}\n@{TIME}\n{quad('y')}\n@{TIME + 1}\n{quad('z')}",
            [(("x",), None), (("y",), TIME), (("z",), TIME + 1)],
        ),
        (f"\n# nothing before\n@{TIME}\n{quad('x')}", [(("x",), TIME)]),
        (f"@{TIME}\n{quad('x')}\n@{TIME}\n{quad('y')}", [(("x",), TIME), (("y",), TIME)]),
        (f"@{TIME}\r{quad('x')}\r", [(("x",), TIME)]),
        (quad("a@b \\n@1 \u2028@2 \x85@3"), [(("a@b \n@1 \u2028@2 \x85@3",), None)]),
    ],
)
def test_a_message_is_one_element_or_several_with_times(text, expected):
    wanted = [(tuple(map(triple, values)), time) for values, time in expected]
    assert read_elements(text) == wanted


def test_labels_of_blank_nodes_are_those_of_one_element():
    ((first, _), (second, _)) = read_elements(f"_:b <urn:a> _:b .\n@{TIME}\n_:b <urn:a> _:b .")
    assert first[0].subject == first[0].object
    assert first[0].subject != second[0].subject


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            f"@{TIME}\n{quad('x')}\n<urn:a> <urn:b> .",
            "element at line 1 is not N-Quads: Parser error at line 3 column 17",
        ),
        (f"{quad('x')}\r\n\r\n@{TIME}\rnothing", "element at line 3 is not N-Quads: Parser error at line 4 "),
        (
            f"{quad('x')}\n@{TIME}\n{quad('y')}\n\n<urn:a> .\n",
            "element at line 2 is not N-Quads: Parser error at line 5 ",
        ),
        ("# comment\nnothing", "element at line 1 is not N-Quads: Parser error at line 2 "),
        (
            f"# comment\n@{TIME}\n# \u2028 \x85\n<urn:a>\u2028",
            "element at line 2 is not N-Quads: Parser error at line 4 ",
        ),
    ],
)
def test_the_lines_of_the_parser_are_those_of_the_message(text, place):
    with pytest.raises(InvalidRequest, match=place) as raised:
        read_elements(text)
    last = place.split("line ")[2].split()[0]
    lines = re.findall(r"line (\d+)", raised.value.description)
    assert lines[1:] == [last] * (len(lines) - 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1 has no quads"),
        ("\n # comment\n", "line 1 has no quads"),
        (f"@{TIME}", "line 1 has no quads"),
        (f"{quad('x')}\n@{TIME}\n@{TIME}\n{quad('y')}", "line 2 has no quads"),
        (f"{quad('x')}\n@noon\n{quad('y')}", "The time in line 2 must be a time with time zone"),
        ("@\n" + quad("x"), "The time in line 1"),
        ("@1700000000\n" + quad("x"), "The time in line 1 is counted in microseconds"),
        ("@2030-01-31T12:00:00\n" + quad("x"), "The time in line 1"),
        ("@" + "9" * 30 + "\n" + quad("x"), "The time in line 1"),
        (f" @{TIME}\n{quad('x')}", "line 1 is not N-Quads"),
        (f"{quad('x')} @{TIME}", "line 1 is not N-Quads"),
        (f"@{TIME}\n{quad('x')}\n@{TIME}\nnothing", "line 3 is not N-Quads"),
        ('{"subscribe": {"sparql": "SELECT * {}"}}', "line 1 is not N-Quads"),
        ("<urn:a> <urn:a> <urn:a> <urn:g> .", "line 1 has named graphs"),
        ("<relative> <urn:a> <urn:a> .", "line 1 is not N-Quads"),
        ("<urn:a> <urn:b> " + "<<( <urn:a> <urn:b> " * 20_000 + "<urn:c>" + " )>>" * 20_000 + " .", "triple terms"),
    ],
)
def test_an_error_names_the_line(text, reason):
    with pytest.raises(InvalidRequest, match=reason):
        read_elements(text)


def test_the_elements_of_a_message_are_limited():
    most = "\n".join(f"@{TIME + number}\n{quad(number)}" for number in range(MAX_ELEMENTS))
    assert len(read_elements(most)) == MAX_ELEMENTS
    assert len(read_elements("\n".join(f"{quad('x')}\n{most}".split("\n")[:-2]))) == MAX_ELEMENTS
    for text in (f"{most}\n@{TIME}\n{quad('x')}", f"{quad('x')}\n{most}"):
        with pytest.raises(TooLarge, match="more than 1,000 elements"):
            read_elements(text)


PIECES = ["@", "\n", "\r", " ", quad("x"), str(TIME), "#", "_:b", "Z", "\0", "\ufeff", "<urn:\u00e9>"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_elements_or_an_error_of_the_protocol(text):
    try:
        found = read_elements(text)
    except EdgeError:
        return
    assert found
    assert all(triples for triples, _ in found)
