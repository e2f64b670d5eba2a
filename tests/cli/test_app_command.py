"""`edge app`: check and show profiles without a gateway."""

import json

import pytest

PROFILE = {
    "namespaces": {"ex": "http://example.org/"},
    "updates": {
        "SET": {
            "sparql": "INSERT DATA { ?lamp ex:state ?state }",
            "forcedBindings": {"lamp": {"type": "uri"}, "state": {"type": "literal", "value": True}},
        }
    },
    "queries": {"LAMPS": {"sparql": "SELECT * { ?lamp ex:state ?state }"}},
}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "lamps.jsap"
    file.write_text(json.dumps(PROFILE, indent=1))
    return file


def test_a_valid_profile_is_listed(edge, file):
    done = edge("app", "check", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()] == [
        [f"{file}:", "good,", "1", "update,", "1", "query"],
        ["update", "SET", "?lamp", "uri,", "?state", "literal", "(default)", "POST", "http://localhost:8000/update"],
        ["query", "LAMPS", "-", "POST", "http://localhost:8000/query,", "ws://localhost:9000/subscribe"],
    ]


def test_every_error_has_its_line_and_the_exit_code_is_1(edge, file, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("host: a b\nupdates:\n  A: {sparql: 'INSERT DATA { zz:a a zz:b }'}\nhots: c\n")
    done = edge("app", "check", bad, file)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f'{bad}:1:7: "a b" is not a host name')
    assert lines[1].startswith(f'{bad}:3:30: the prefix "zz:" is declared neither')
    assert lines[2] == f'{bad}:4:1: note: the member "hots" means nothing here'
    assert lines[3] == f"{file}: good, 1 update, 1 query"


def test_unreadable_profile_is_exit_code_2(edge, tmp_path):
    for command in ("check", "show"):
        done = edge("app", command, tmp_path / "none.jsap")
        assert (done.returncode, done.stdout) == (2, "")
        assert "cannot be read: No such file or directory" in done.stderr


def test_the_request_that_would_be_sent_is_shown(edge, file):
    done = edge("app", "show", file, "SET", "--bind", "lamp=ex:kitchen", "-b", '?state=a"b=c')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "PREFIX ex: <http://example.org/>",
        'INSERT DATA {  <http://example.org/kitchen>  ex:state  "a\\"b=c"  }',
    ]
    assert "SET" in edge("app", "show", file).stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["NONE"], 'no update or query "NONE"; there are: SET, LAMPS'),
        (["SET"], 'update "SET" needs a value for ?lamp'),
        (["SET", "--bind", "lamp=x y"], "not an absolute IRI"),
        (["SET", "--bind", "lamp"], "VARIABLE=VALUE"),
        (["LAMPS", "--bind", "lamp=ex:a"], "no forced binding ?lamp"),
    ],
)
def test_a_request_that_cannot_be_built_is_an_error(edge, file, arguments, reason):
    done = edge("app", "show", file, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_a_wrong_profile_is_not_shown(edge, file):
    file.write_text("{}}")
    done = edge("app", "show", file, "SET")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"edge: {file}:1:3: ")


def test_control_characters_do_not_reach_the_terminal(edge, file):
    file.write_text('host: "a\\e[31m"\n')
    done = edge("app", "check", file)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + done.stderr
