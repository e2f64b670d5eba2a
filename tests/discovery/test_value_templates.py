"""Value templates of announcements become keys of a reading, or are refused with a reason."""

import pytest

from edge.discovery.value_template import UnsupportedTemplate, compile_template

KEYS = {
    "{{ value }}": {},
    "{{value}}": {},
    "{{ value_json.temperature }}": {"path": '["temperature"]'},
    "{{value_json['AM2301'].Temperature}}": {"path": '["AM2301"]["Temperature"]'},
    '{{ value_json["a b"].list[0][-1].x }}': {"path": '["a b"]["list"][0][-1]["x"]'},
    "{{ value_json.0 }}": {"path": "[0]"},
    "{{ value_json }}": {"path": "$"},
    "{{ value_json.tempc | is_defined }}": {"path": '["tempc"]'},
    "{{- value_json.a | round(1) -}}": {"path": '["a"]', "round": 1},
    "{{ value_json.a | float | round }}": {"path": '["a"]', "round": 0},
    "{{ value | int }}": {"round": "down"},
    "{{ value_json.a | round(0) | int }}": {"path": '["a"]', "round": 0},
    "{{ value_json.a | float / 10 }}": {"path": '["a"]', "scale": "0.1"},
    "{{ (value_json.a - 32) * 5 / 9 }}": {"path": '["a"]', "scale": "0.5555555555555555555555555555555556",
                                          "offset": "-17.77777777777777777777777777777778", "round": 9},
    "{{ 100 - value_json.a }}": {"path": '["a"]', "scale": "-1", "offset": "100"},
    "{{ (value | float(0) * 1.8 + 32) | round(2) }}": {"scale": "1.8", "offset": "32.0", "round": 2},
    "{{ value_json.a | default(0) }}": {"path": '["a"]', "default": "0"},
    "{{ value_json.a | float(-1) }}": {"path": '["a"]', "default": "-1"},
    "{{ value_json.a | default('') }}": {"path": '["a"]'},
    "{{ value_json.a | default(none) }}": {"path": '["a"]'},
    "{{ value_json.a | default('off') }}": {"path": '["a"]', "default": "off"},
    "{{ value_json.state | lower }}": {"path": '["state"]', "case": "lower"},
    "{{ float(value_json.pa) * 0.01 | is_defined }}": {"path": '["pa"]', "scale": "0.01"},
    "{{ int(value_json.a, 0) }}": {"path": '["a"]', "default": "0", "round": "down"},
    "{{ value_json.t | float / 10 | round(1) }}": {"path": '["t"]', "scale": "0.1"},
    "{{ value * 2.6 | int }}": {"scale": "2"},
    "{{ (100 - value / 1.8) | int }}": None,
    "{{ int((value - 32) / 9 * 5) }}": None,
    "{{ value * 2 | log }}": None,
    "{{ value * " + "9" * 39 + " | round(15) }}": None,
    "{{ float(5) }}": None,
    "{{ float(value_json.a }}": None,
    "{{ value_json['it''s'] }}": None,
    "{{ value_json.a if value_json.a else 0 }}": None,
    "{% if value == 'x' %}1{% endif %}": None,
    "{{ value_json.a }}{{ value_json.b }}": None,
    "{{ value_json.a }} W": None,
    "{{ value_json.a * value_json.b }}": None,
    "{{ 1 / value_json.a }}": None,
    "{{ value_json.a / 0 }}": None,
    "{{ value_json.a / 0.0 }}": None,
    "{{ value_json.a | timestamp_local }}": None,
    "{{ value_json.a | round(1, 'floor') }}": None,
    "{{ value_json.a | int / 10 }}": None,
    "{{ value_json.a | lower * 2 }}": None,
    "{{ value_json.a.split(',')[0] }}": None,
    "{{ value.__class__ }}": None,
    "{{ states('sensor.x') }}": None,
    "{{ value ~ 'x' }}": None,
    "{{ 5 }}": None,
    "{{ }}": None,
    "{{ value": None,
    "value": None,
    "": None,
    "{{ -value }}": None,
    "{{ value | }}": None,
    "{{ value_json. }}": None,
    "{{ value_json[] }}": None,
    "{{ value_json[1.5] }}": None,
    "{{ " + "(" * 100 + "value" + ")" * 100 + " }}": None,
    "{{" + "int(" * 197 + "value" + ")" * 197 + "}}": None,
    "{{ " + "float((" * 90 + "value" + "))" * 90 + " }}": None,
    "{{ value_json" + ".a" * 100 + " }}": None,
    "{{ value * " + "9" * 100 + " }}": None,
    "{{ value" + " * 9999999999" * 30 + " }}": None,
    "{{ value" + " * 0" * 300 + " }}": None,
    "{{" * 2000: None,
    "{{ value_json['\\x41'] }}": None,
    "{{ value_json.a | float(default=0) }}": None,
}  # fmt: skip


@pytest.mark.parametrize("template", KEYS)
def test_a_template_becomes_keys_or_is_refused(template):
    wanted = KEYS[template]
    if wanted is None:
        with pytest.raises(UnsupportedTemplate) as error:
            compile_template(template).keys()
        assert len(str(error.value)) > 10
    else:
        found = compile_template(template).keys()
        assert {key: value if isinstance(value, int) else str(value) for key, value in found.items()} == wanted


def test_a_zero_factor_is_exact():
    assert compile_template("{{ value * 0 + 5 }}").keys()["offset"] == 5


@pytest.mark.parametrize("divisor", ["1.8", "3", "3.6", "6", "7", "60", "255", "3600"])
def test_a_quotient_without_an_end_is_rounded(divisor):
    for template in (f"{{{{ value / {divisor} }}}}", f"{{{{ (value | float - 32) / {divisor} }}}}"):
        assert compile_template(template).keys()["round"] == 9


@pytest.mark.parametrize("template", ["{{ value * (5 / 9) }}", "{{ value + 1 / 3 }}", "{{ 1 / 3 * value }}"])
def test_a_quotient_of_numbers_is_rounded_too(template):
    assert compile_template(template).keys()["round"] == 9


@pytest.mark.parametrize("template", ["{{ value / 1.6 }}", "{{ value / 8 + 0.5 }}", "{{ 1 - value / 10 }}"])
def test_a_quotient_with_an_end_is_exact(template):
    keys = compile_template(template).keys()
    assert "round" not in keys
