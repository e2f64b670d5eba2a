"""Actuators: for any value the message is well-formed or absent; errors name their line."""

import json
import re
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping import CommandError, Mapper, MappingError, SolutionTerm, explain, load_builtin, load_pack
from edge.mapping.actuators import Command
from edge.mapping.reading import XSD

EX = '[namespaces]\nex = "http://example.org/"\n\n'
QUERY = 'query = "SELECT ?id ?x ?y { ?lamp ex:id ?id ; ex:x ?x OPTIONAL { ?lamp ex:y ?y } }"\n'
HEAD = EX + "[[actuator]]\n" + QUERY


def actuator(keys: str, head: str = HEAD):
    (found,) = load_pack(head + keys, "f").actuators
    return found


def number(text: str) -> SolutionTerm:
    return SolutionTerm(text, XSD + "decimal")


def sent(keys: str, **terms: SolutionTerm):
    found = actuator(keys)
    return found.added.render(found.solution(terms))


def document(payload: str, more: str = "", **terms: SolutionTerm) -> object:
    return json.loads(sent(f'topic = "a"\npayload = {payload}\n{more}', **terms).payload)


def test_a_lamp_of_zigbee2mqtt():
    found = actuator(
        'topic = "zigbee2mqtt/{id}/set"\npayload = { state = "ON", brightness = "{x}" }\n'
        'retain = true\nremoved = { payload = { state = "OFF" }, qos = 2 }\n'
    )
    solution = found.solution({"id": SolutionTerm("kitchen"), "x": number("40")})
    assert found.added.render(solution) == Command(
        "f/zigbee2mqtt/{id}/set",
        "zigbee2mqtt/kitchen/set",
        b'{"state":"ON","brightness":40}',
        1,
        True,
    )
    assert found.removed.render(solution)[1:5] == ("zigbee2mqtt/kitchen/set", b'{"state":"OFF"}', 2, True)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (number("21.5"), "21.5"),
        (SolutionTerm("7", XSD + "integer"), "7"),
        (SolutionTerm("1.0E2", XSD + "double"), "1.0E2"),
        (SolutionTerm("+007", XSD + "unsignedByte"), "7"),
        (SolutionTerm("true", XSD + "boolean"), "true"),
        (SolutionTerm("0", XSD + "boolean"), "false"),
        (SolutionTerm("21.5"), '"21.5"'),
        (SolutionTerm('say "hi"\\\n'), '"say \\"hi\\"\\\\\\n"'),
        (SolutionTerm("2024-05-01T12:00:00Z", XSD + "dateTime"), '"2024-05-01T12:00:00Z"'),
        (SolutionTerm("http://example.org/a#b", None), '"http://example.org/a#b"'),
    ],
)
def test_values_keep_their_kind_in_json(term, expected):
    assert sent('topic = "a"\npayload = { v = "{x}" }', x=term).payload == f'{{"v":{expected}}}'.encode()


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (SolutionTerm("NaN", XSD + "double"), "is not a number"),
        (SolutionTerm("INF", XSD + "double"), "is not a number"),
        (SolutionTerm("abc", XSD + "integer"), "is not a number"),
        (SolutionTerm("maybe", XSD + "boolean"), "not a truth value"),
    ],
)
def test_values_that_json_does_not_have_are_problems(term, reason):
    with pytest.raises(CommandError, match=reason):
        sent('topic = "a"\npayload = { v = "{x}" }', x=term)


def test_json_of_every_shape():
    payload = '{ "{id}" = [1, 2.50, true, "{x}", "{y}"], nested = { text = "{x} of {{it}}", gone = "{y}" } }'
    assert document(payload, id=SolutionTerm('k"ey'), x=number("5")) == {
        'k"ey': [1, 2.5, True, 5, None],
        "nested": {"text": "5 of {it}"},
    }
    assert document("true") is True
    assert document('["{x|upper}"]', x=SolutionTerm("on")) == ["ON"]


def test_texts():
    assert (
        sent('topic = "a"\npayload = "{x},{id|upper}"', x=number("5"), id=SolutionTerm("é")).payload == "5,É".encode()
    )
    assert sent('topic = "a"\npayload = ""').payload == b""
    with pytest.raises(CommandError, match=r"\?y has no value"):
        sent('topic = "a"\npayload = "{y}"')


@pytest.mark.parametrize(
    ("iri", "local"),
    [
        ("http://example.org/lamps#kitchen", "kitchen"),
        ("http://example.org/lamps/kitchen", "kitchen"),
        ("urn:sepa-edge:lamp:kitchen", "kitchen"),
        ("http://example.org/B%C3%BCro", "Büro"),
    ],
)
def test_the_local_name_of_an_iri(iri, local):
    assert sent('topic = "{x|local}/set"\npayload = "{x}"', x=SolutionTerm(iri, None))[1:3] == (
        f"{local}/set",
        iri.encode(),
    )


def test_conversions():
    more = 'convert = { x = { values = { true = "ON", false = "OFF" } }, y = { scale = 2.54, max = 254 } }'
    payload = '{ state = "{x}", brightness = "{y}" }'
    on = SolutionTerm("true", XSD + "boolean")
    assert document(payload, more, x=on, y=number("100")) == {"state": "ON", "brightness": 254.0}
    with pytest.raises(CommandError, match=r"\?y 256.54 is above the maximum 254"):
        document(payload, more, x=on, y=number("101"))
    with pytest.raises(CommandError, match=r'\?x "maybe" is not in the table'):
        document(payload, more, x=SolutionTerm("maybe"), y=number("1"))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a/b", "slash"),
        ("+", "wildcard"),
        ("a#", "wildcard"),
        ("", "empty"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("\ufffe", "control"),
    ],
)
def test_invalid_topic_characters_are_refused(value, reason):
    with pytest.raises(CommandError, match=reason):
        sent('topic = "zigbee2mqtt/{x}/set"\npayload = "1"', x=SolutionTerm(value))


def test_slashes_must_be_allowed():
    keys = 'topic = "zigbee2mqtt/{x...}/set"\npayload = "1"'
    assert sent(keys, x=SolutionTerm("floor/lamp")).topic == "zigbee2mqtt/floor/lamp/set"
    for value in ("/lamp", "floor//lamp", "floor/#"):
        with pytest.raises(CommandError):
            sent(keys, x=SolutionTerm(value))


def test_no_value_reaches_the_brokers_own_topics_or_grows_beyond_mqtt():
    with pytest.raises(CommandError, match="broker's own"):
        sent('topic = "{x}/set"\npayload = "1"', x=SolutionTerm("$SYS"))
    with pytest.raises(CommandError, match="65535"):
        sent('topic = "{x}/set"\npayload = "1"', x=SolutionTerm("x" * 65_535))
    with pytest.raises(CommandError, match="limit"):
        sent('topic = "a"\npayload = "{x}"', x=SolutionTerm("x" * 300_000))


TERMS = st.builds(
    SolutionTerm,
    st.text(max_size=20),
    st.sampled_from([None, *(XSD + name for name in ("string", "decimal", "integer", "double", "boolean"))]),
)


@given(TERMS, TERMS)
def test_any_values_give_a_well_formed_message_or_an_error(x, y):
    found = actuator('topic = "lamps/{x}/set"\npayload = { "{x}" = "{y}", list = ["{x} {y}", "{x}"] }')
    try:
        command = found.added.render(found.solution({"x": x, "y": y}))
    except CommandError:
        return
    assert re.fullmatch("lamps/[^/+#\0]+/set", command.topic, re.DOTALL)
    assert found.writes(command.topic)
    value = json.loads(command.payload)
    assert list(value)[-1] == "list"
    assert all(isinstance(each, str | bool | int | float) for each in [*value["list"], *list(value.values())[:-1]])
    texts = (None, XSD + "string")
    if x.datatype in texts and y.datatype in texts and x.text != "list":
        assert value[x.text] == y.text


def test_own_messages_are_not_unmapped():
    text = HEAD + 'topic = "lamps/{id}/set"\npayload = "1"\nremoved = { topic = "lamps/{id}/off", payload = "" }\n'
    mapper = Mapper([load_pack(text, "f")])
    for topic in ("lamps/a/set", "lamps/b/off"):
        outcome = mapper.map(topic, b"1")
        assert (outcome.matched, outcome.ignored, outcome.readings) == (True, True, ())
    assert not mapper.map("lamps/a/state", b"1").matched
    assert explain(mapper, "lamps/a/set", b"1").candidates[0].why == "what this actuator sends itself"


def test_own_messages_are_readings_where_they_are_mapped():
    text = HEAD + 'topic = "lamps/{id}/set"\npayload = "1"\n[[mapping]]\ntopic = "lamps/+/set"\nobservation = "ex:o"\n'
    (reading,) = Mapper([load_pack(text, "f")]).map("lamps/a/set", b"5").readings
    assert reading.value == "5"


MULTILINE = EX + '[[actuator]]\ntopic = "a/b"\npayload = "x"\nquery = """\n{}\n"""\n'


@pytest.mark.parametrize(
    ("text", "line", "key", "nearest", "reason"),
    [
        (EX + '[[actuator]]\ntopic = "a"\npayload = "x"\n', 4, "query", None, "Field required"),
        (HEAD + 'payload = "x"\n', 4, "topic", None, "needs a topic"),
        (HEAD + 'topic = "a"\n', 4, "payload", None, "needs a payload"),
        (HEAD + 'topic = "a/{idd}"\npayload = "x"\n', 6, "topic", "id", "does not select"),
        (HEAD + 'topic = "a/+"\npayload = "x"\n', 6, "topic", None, "no wildcards"),
        (HEAD + 'topic = "$SYS/{x}"\npayload = "x"\n', 6, "topic", None, "no \\$"),
        (HEAD + 'topic = "{id}/{x}"\npayload = "x"\n', 6, "topic", None, "must be fixed"),
        (HEAD + 'topic = "{id...}"\npayload = "x"\n', 6, "topic", None, "must be fixed"),
        (HEAD + 'topic = "a"\npayload = "{z}"\n', 7, "payload", None, "does not select"),
        (HEAD + 'topic = "a"\npayload = "{x|uper}"\n', 7, "payload", "upper", "not a filter"),
        (HEAD + 'topic = "a"\npayload = \'{"v": {x}}\'\n', 7, "payload", None, "written as a table"),
        (HEAD + 'topic = "a"\npayload = { v = 2024-05-01 }\n', 7, "payload", None, "no value like"),
        (HEAD + 'topic = "a"\npayload = { v = nan }\n', 7, "payload", None, "no value like"),
        (HEAD + 'topic = "a"\npayload = "x"\nqos = 3\n', 8, "qos", None, "less than or equal to 2"),
        (HEAD + 'topic = "a"\npayload = "x"\nrate = 0\n', 8, "rate", None, "greater than 0"),
        (HEAD + 'topic = "a"\npayload = "x"\nretian = true\n', 8, "retian", "retain", "Unknown key"),
        (HEAD + 'topic = "a"\npayload = "x"\nremoved = { qos = 1 }\n', 8, "removed.payload", None, "needs a payload"),
        (HEAD + 'topic = "a"\npayload = "x"\nremoved = { payload = "{w}" }\n', 8, "removed.payload", None, "select"),
        (HEAD + 'topic = "a"\npayload = "x"\nconvert = { w = { scale = 2 } }\n', 8, "convert.w", None, "select"),
        (HEAD + 'topic = "a"\npayload = "x"\nconvert = { x.scal = 2 }\n', 8, "convert.x.scal", "scale", "Unknown"),
        (MULTILINE.format("SELECT ?a {\n  ?a exx:id ?b }"), 9, "query", "ex", 'prefix "exx"'),
        (MULTILINE.format("SELECT ?a {\n  ?a ex:id ?b .\n  ?b ex:id ] }"), 10, "query", None, "Not a SPARQL query, at"),
        (MULTILINE.format("ASK { ?a ex:id ?b }"), 7, "query", None, "must be a SELECT"),
        (MULTILINE.format("DELETE WHERE { ?a ex:id ?b }"), 8, "query", None, "Not a SPARQL query"),
    ],
)
def test_faults(text, line, key, nearest, reason):
    with pytest.raises(MappingError) as error:
        load_pack(text, "my.toml")
    (fault,) = error.value.faults
    assert (fault.file, fault.line, fault.key, fault.nearest) == ("my.toml", line, key, nearest)
    assert re.search(reason, fault.reason)
    assert re.match(r'my\.toml:\d+: actuator "', str(fault))


def test_names_are_unique_and_errors_are_reported_with_those_of_mappings():
    one = 'name = "a"\ntopic = "t"\npayload = "x"\n'
    with pytest.raises(MappingError) as error:
        load_pack(f"{HEAD}{one}[[mapping]]\ntopic = 5\n[[actuator]]\nname = 1\n", "f")
    assert [(each.table, each.line) for each in error.value.faults] == [
        ("mapping", 9),
        ("mapping", 10),
        ("actuator", 11),
        ("actuator", 11),
        ("actuator", 11),
        ("actuator", 12),
    ]
    with pytest.raises(MappingError, match='f:10: actuator "a": name: Another actuator'):
        load_pack(f"{HEAD}{one}[[actuator]]\n{one}{QUERY}", "f")


def test_queries_have_the_prefixes_of_the_file_and_their_own():
    query = "PREFIX ex: <http://other/> SELECT ?x { ?x ex:a <urn:ex:b> ; sosa:hasResult 'unit:x' # rdf:no\n }"
    found = actuator(f"query = '''{query}'''\ntopic = \"a\"\npayload = \"x\"\n", EX + "[[actuator]]\n")
    assert found.query == f"PREFIX sosa: <http://www.w3.org/ns/sosa/> {query}"


def test_a_function_of_the_engine_may_be_called():
    query = 'query = "SELECT (<urn:some:function>() AS ?x) { }"\n'
    assert actuator(query + 'topic = "a"\npayload = "{x}"\n', EX + "[[actuator]]\n").added


def test_a_changed_file_changes_its_actuators_only():
    keys = 'topic = "a/{id}"\npayload = { v = "{x}" }\n'
    first, moved = actuator(keys), actuator(keys, "# a line more\n" + HEAD)
    assert first.same(moved)
    assert not first.same(actuator(keys.replace("v =", "w =")))
    assert not first.same(actuator(keys, HEAD.replace("example.org", "example.com")))


GUIDE = (Path(__file__).parents[2] / "docs" / "actuation.md").read_text("utf-8")
DATA = re.search("```sparql\n(.*?)```", GUIDE.partition("## Recipes")[2], re.DOTALL)[1]


def recipes():
    """Return the messages of the guide's actuators: for its lamp, for one that is off, and one without a dimmer."""
    store = ox.Store()
    store.update(DATA)
    store.update(
        DATA.replace("lamp1", "lamp2").replace("kitchen", "hall").replace("true", "false").replace("40", "100")
    )
    store.update(re.sub("; ex:dimming [0-9]+", "", DATA).replace("lamp1", "lamp3").replace("kitchen", "attic"))
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)):
        for each in load_pack(text, f"example{number}").actuators:
            rows = store.query(each.query)
            names = [variable.value for variable in rows.variables]
            for row in rows:
                found = {name: term for name, term in zip(names, row, strict=True) if term is not None}
                terms = {name: SolutionTerm(term.value, term.datatype.value) for name, term in found.items()}
                yield each.added.render(each.solution(terms))


def test_the_examples_of_the_guide_give_the_documented_results():
    received = {(each.topic, each.payload.decode()) for each in recipes()}
    rpc = '{{"id":1,"src":"shelly-answers","method":"{}","params":{{"id":0,"on":{}}}}}'
    assert received >= {
        ("zigbee2mqtt/kitchen/set", '{"state":"ON","brightness":40}'),
        ("zigbee2mqtt/kitchen/set", '{"state":"ON","brightness":102,"transition":1}'),
        ("zigbee2mqtt/hall/set", '{"state":"OFF","brightness":254,"transition":1}'),
        ("zigbee2mqtt/attic/set", '{"state":"ON","transition":1}'),
        ("cmnd/kitchen/POWER", "ON"),
        ("cmnd/hall/POWER", "OFF"),
        ("cmnd/kitchen/Dimmer", "40"),
        ("cmnd/hall/Dimmer", "0"),
        ("shellies/attic/relay/0/command", "on"),
        ("shellies/hall/light/0/set", '{"turn":"off","brightness":100}'),
        ("attic/rpc", rpc.format("Switch.Set", "true")),
        ("hall/rpc", rpc.format("Light.Set", 'false,"brightness":100')),
    }


def test_messages_of_actuators_are_not_readings():
    mapper = Mapper([load_builtin(name) for name in ("zigbee2mqtt", "tasmota", "shelly")])
    for command in recipes():
        if not command.topic.endswith("/rpc"):
            outcome = mapper.map(command.topic, command.payload)
            assert outcome.ignored
            assert not outcome.readings
    assert mapper.map("shelly-answers/rpc", b"{}").ignored
