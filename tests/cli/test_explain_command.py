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


def test_a_query_that_is_kept_up_to_date_incrementally(ask):
    told = words(ask("explain", JOIN))
    assert told.startswith("SELECT. Kept up to date incrementally.")
    assert "?road :has ?lamp watches only :r1 :has ?lamp now about 2 triples match exact:" in told
    assert "open constants: :r1" in told
    assert "now: 0 subscriptions to this query; 0 subscribed queries evaluated together" in told
    assert "Good to know" not in told


def test_a_query_that_is_evaluated_anew(ask):
    told = words(ask("explain", PREFIX + "SELECT ?x { :r1 :next+ ?x }"))
    assert told.startswith("SELECT. Re-evaluated.")
    assert "Why: A path of any length" in told
    assert "Good to know - If the length is bounded" in told


def test_what_costs_as_much_as_the_whole_query_is_marked(ask):
    told = words(ask("explain", PREFIX + "SELECT * { ?l :dim ?d OPTIONAL { ?other :name ?name } }"))
    assert "?other :name ?name in OPTIONAL now about 0 triples match everything:" in told
    assert "! This pattern has no variable" in told


def test_branches_of_a_union_are_parts(ask):
    told = words(ask("explain", PREFIX + "SELECT * { { ?l :dim ?d } UNION { ?l :has ?d } }"))
    assert "Patterns, part 1 of 2 ?l :dim ?d" in told
    assert "Patterns, part 2 of 2 ?l :has ?d" in told


def test_json_is_what_the_gateway_says(ask):
    done = ask("explain", "--json", JOIN)
    told = json.loads(done.stdout)
    assert (told["form"], told["kept"]) == ("SELECT", "incremental")
    assert [pattern["matches"] for pattern in told["parts"][0]] == [2, 2]


def test_those_who_are_subscribed_are_counted(ask, shared_edge, gateway):
    watching = [
        shared_edge.start("subscribe", "--json", "--data-dir", gateway.data_dir, JOIN.replace(":r1", road))
        for road in (":r1", ":r1", ":r2")
    ]
    for each in watching:
        assert json.loads(each.stdout.readline())["sequence"] == 0
    told = words(ask("explain", JOIN))
    assert "now: 2 subscriptions to this query; 2 subscribed queries evaluated together" in told
    for each in watching:
        each.kill()
        each.communicate()


def test_sources_and_datasets_are_those_of_a_query(ask, tmp_path):
    file = tmp_path / "q.rq"
    file.write_text(JOIN)
    assert ask("explain", f"@{file}").stdout == ask("explain", "-", input=JOIN).stdout == ask("explain", JOIN).stdout
    told = words(ask("explain", "--default-graph", "urn:g", JOIN))
    assert "GRAPH <urn:g> { :r1 :has ?lamp }" in told


def test_data_does_not_steer_the_terminal(ask):
    done = ask("explain", PREFIX + 'ASK { ?l :dim "a\\u001b[31m\\u202e" }')
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_it_can_be_read_on_a_narrow_terminal(ask):
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


def test_help_says_what_it_is(shared_edge):
    done = shared_edge("explain", "--help", input="")
    assert "edge explain" in done.stdout
    assert "explain" in shared_edge("--help").stdout
