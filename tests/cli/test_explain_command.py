"""`edge explain` against a running gateway."""

import json
import subprocess

import pytest

PREFIX = "PREFIX : <http://city/> "
JOIN = PREFIX + "SELECT ?lamp ?d { ?road :has ?lamp . ?lamp :dim ?d FILTER(?road = :r1) }"


@pytest.fixture
def ask(shared_edge, gateway):
    """Run a command against the gateway, whose graph is a road with two lamps."""

    def run(command, *arguments, **more):
        return shared_edge(command, "--data-dir", gateway.data_dir, *arguments, **more)

    data = "CLEAR ALL ; INSERT DATA { :r1 :has :l1 , :l2 . :r2 :has :l3 . :l1 :dim 1 . :l2 :dim 2 }"
    assert run("update", PREFIX + data).returncode == 0
    return run


def words(done: subprocess.CompletedProcess) -> str:
    """Return the printed words, independent of line breaks."""
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 100
    return " ".join(done.stdout.split())


def test_an_incremental_query_is_explained(ask):
    reported = words(ask("explain", JOIN))
    assert reported.startswith("SELECT. Kept up to date incrementally.")
    assert "?road :has ?lamp watches only :r1 :has ?lamp now about 2 triples match exact:" in reported
    assert "open constants: :r1" in reported
    assert "now: 0 subscriptions to this query; 0 subscribed queries evaluated together" in reported
    assert "Good to know" not in reported


def test_the_code_of_an_update_is_printed(ask):
    update = "DELETE { <urn:a> <urn:p> ?old } INSERT { <urn:a> <urn:p> 2 } WHERE { OPTIONAL { <urn:a> <urn:p> ?old } }"
    text = ask("explain", "--code", f"{update} ; DELETE WHERE {{ ?s <urn:p> ?o }} ; CLEAR DEFAULT").stdout
    assert "# Operation 1 of 3\ndef modify(" in text
    assert "# Operation 2 of 3\n# interpreted" in text
    assert "# Operation 3 of 3\n# not generated" in text


def test_the_code_of_an_update_is_not_json(ask):
    done = ask("explain", "--code", "--json", "CLEAR ALL")
    assert (done.returncode, done.stdout) == (2, "")
    assert "omit --json" in done.stderr


def test_the_code_of_an_illegal_update_is_an_error(ask):
    done = ask("explain", "--code", "INSRT DATA {}")
    assert done.returncode == 1
    assert "INSERT" in done.stderr


def test_a_reevaluated_query_is_explained(ask):
    reported = words(ask("explain", PREFIX + "SELECT ?x { :r1 :next+ ?x }"))
    assert reported.startswith("SELECT. Re-evaluated.")
    assert "Why: A path of any length" in reported
    assert "Good to know - If the length is bounded" in reported


def test_a_trigger_that_costs_as_much_as_the_query_is_marked(ask):
    reported = words(ask("explain", PREFIX + "SELECT * { ?l :dim ?d OPTIONAL { ?other :name ?name } }"))
    assert "?other :name ?name in OPTIONAL now about 0 triples match everything:" in reported
    assert "! This pattern has no variable" in reported


def test_branches_of_a_union_are_parts(ask):
    reported = words(ask("explain", PREFIX + "SELECT * { { ?l :dim ?d } UNION { ?l :has ?d } }"))
    assert "Patterns, part 1 of 2 ?l :dim ?d" in reported
    assert "Patterns, part 2 of 2 ?l :has ?d" in reported


def test_json_is_the_response_of_the_gateway(ask):
    done = ask("explain", "--json", JOIN)
    reported = json.loads(done.stdout)
    assert (reported["form"], reported["kept"]) == ("SELECT", "incremental")
    assert [pattern["matches"] for pattern in reported["parts"][0]] == [2, 2]


def test_subscribers_are_counted(ask, shared_edge, gateway):
    watching = [
        shared_edge.start("subscribe", "--json", "--data-dir", gateway.data_dir, JOIN.replace(":r1", road))
        for road in (":r1", ":r1", ":r2")
    ]
    for each in watching:
        assert json.loads(each.stdout.readline())["sequence"] == 0
    reported = words(ask("explain", JOIN))
    assert "now: 2 subscriptions to this query; 2 subscribed queries evaluated together" in reported
    for each in watching:
        each.kill()
        each.communicate()


def test_sources_and_datasets_are_those_of_a_query(ask, tmp_path):
    file = tmp_path / "q.rq"
    file.write_text(JOIN)
    assert ask("explain", f"@{file}").stdout == ask("explain", "-", input=JOIN).stdout == ask("explain", JOIN).stdout
    reported = words(ask("explain", "--default-graph", "urn:g", JOIN))
    assert "GRAPH <urn:g> { :r1 :has ?lamp }" in reported


def test_control_characters_do_not_reach_the_terminal(ask):
    done = ask("explain", PREFIX + 'ASK { ?l :dim "a\\u001b[31m\\u202e" }')
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_the_explanation_fits_a_narrow_terminal(ask):
    done = ask("explain", PREFIX + "SELECT ?x { :r1 :next+ ?x }", environ={"COLUMNS": "50"})
    assert 40 < max(map(len, done.stdout.splitlines())) <= 50


def test_refusals(ask, shared_edge):
    done = ask("explain", "SELEKT *")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    done = shared_edge("explain", "--url", "http://127.0.0.1:9", "ASK {}")
    assert done.returncode == 3
    done = shared_edge("explain", "ASK {}", environ={"EDGE_URL": "nonsense"})
    assert done.returncode == 2


def test_help_describes_the_command(shared_edge):
    done = shared_edge("explain", "--help", input="")
    assert "edge explain" in done.stdout
    assert "explain" in shared_edge("--help").stdout
