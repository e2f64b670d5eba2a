"""The composed gateway inside this process: settings reach every component, and two gateways do not interfere."""

import asyncio
import json
import re
import socket
import threading
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from edge.config import Settings
from edge.engine.requests import QueryRequest
from edge.gateway import Gateway, StartError
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent


def settings(data_dir, **sections):
    ports = {"http": {"port": 0}, "ws": {"port": 0}, "mqtt": {"port": 0}, "host": {"enabled": False}}
    merged = {name: {**ports.get(name, {}), **sections.get(name, {})} for name in {*ports, *sections}}
    return Settings.model_validate({"data_dir": data_dir, **merged})


async def test_two_gateways_live_in_one_process(tmp_path):
    async with Gateway(settings(tmp_path / "a")) as one, Gateway(settings(tmp_path / "b")) as two:
        assert not set(one.endpoints.values()) & set(two.endpoints.values())
        for gateway in (one, two):
            found = json.loads((gateway.settings.data_dir / "endpoints.json").read_text())
            assert found == gateway.endpoints
        async with httpx.AsyncClient() as client:
            insert = "INSERT DATA { <urn:a> <urn:b> <urn:c> }"
            await client.post(one.endpoints["http"] + "/update", data={"update": insert})
            for gateway, expected in ((one, True), (two, False)):
                answer = await client.get(
                    gateway.endpoints["http"] + "/query", params={"query": "ASK { <urn:a> ?p ?o }"}
                )
                assert answer.json()["boolean"] is expected
    assert not (tmp_path / "a" / "endpoints.json").exists()


async def test_the_engine_has_the_settings(tmp_path):
    chosen = settings(
        tmp_path,
        engine={"base_iri": "http://example.org/base/", "default_graph_as_union": True},
        http={"max_message": 2000},
    )
    async with Gateway(chosen) as gateway, httpx.AsyncClient(base_url=gateway.endpoints["http"]) as client:
        update = "INSERT DATA { GRAPH <g> { <s> <p> <o> } }"
        assert (await client.post("/update", data={"update": update})).status_code == 200
        ask = "ASK { <http://example.org/base/s> ?p ?o }"
        assert (await client.get("/query", params={"query": ask})).json()["boolean"] is True
        assert (await client.post("/update", data={"update": "#" * 3000})).status_code == 413


async def test_a_gateway_serves_clients_when_its_endpoints_file_is_there(tmp_path, monkeypatch):
    gateway = Gateway(settings(tmp_path))
    write, answers = gateway._write_endpoints, []

    def write_and_ask():
        write()
        answers.append(httpx.get(gateway.endpoints["http"] + "/health").status_code)

    monkeypatch.setattr(gateway, "_write_endpoints", write_and_ask)
    async with gateway:
        assert answers == [200]


async def test_a_stopping_gateway_notifies_its_subscribers(tmp_path):
    gateway = Gateway(settings(tmp_path))
    await gateway.start()
    async with connect(gateway.endpoints["ws"]) as socket:
        await socket.send('{"subscribe":{"sparql":"SELECT * { ?s ?p ?o }"}}')
        assert json.loads(await socket.recv())["notification"]["sequence"] == 0
        await gateway.stop()
        await socket.wait_closed()
        assert socket.close_code == 1001
    await gateway.stop()


async def test_the_engine_has_the_time_that_the_gates_leave_for_the_stop(tmp_path, monkeypatch):
    gateway = Gateway(settings(tmp_path, shutdown={"timeout": 4.0}))
    await gateway.start()
    engine, timeouts = gateway._engine, []
    close = engine.close

    def closed(timeout):
        timeouts.append(timeout)
        return close(timeout)

    monkeypatch.setattr(engine, "close", closed)
    gateway._stack.push_async_callback(asyncio.sleep, 1.0)
    await gateway.stop()
    assert len(timeouts) == 1
    assert timeouts[0] < 3.6


async def test_a_start_that_fails_leaves_nothing_running(tmp_path):
    taken = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    with pytest.raises(StartError, match=r"mqtt\.port"):
        await Gateway(settings(tmp_path, mqtt={"port": port})).start()
    taken.close()
    await taken.wait_closed()
    async with Gateway(settings(tmp_path, mqtt={"port": port})) as gateway:
        assert gateway.endpoints["mqtt"] == f"mqtt://127.0.0.1:{port}"


async def test_the_client_identifier_at_the_broker_survives_a_restart(tmp_path):
    names = []
    for _ in range(2):
        async with Gateway(settings(tmp_path)):
            names.append((tmp_path / "mqtt-client-id").read_text())
    assert names[0] == names[1]
    assert names[0].startswith("sepa-edge-")


async def test_ipv6_loopback(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("needs a machine with IPv6 on its loopback interface")
    loopback = {"host": "::1", "port": 0}
    async with Gateway(settings(tmp_path, http=loopback, ws=loopback, mqtt=loopback)) as gateway:
        assert gateway.endpoints["http"].startswith("http://[::1]:")
        assert gateway.endpoints["mqtt"].startswith("mqtt://[::1]:")
        async with httpx.AsyncClient(base_url=gateway.endpoints["http"]) as client:
            assert (await client.get("/health")).json()["status"] == "ready"
        async with connect(gateway.endpoints["ws"]):
            pass


async def test_a_broken_mapping_file_stops_nothing_and_is_reported(tmp_path):
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "mine.toml").write_text("[[mapping]]\ntopci = 1\n")
    async with (
        Gateway(settings(tmp_path)) as gateway,
        httpx.AsyncClient(base_url=gateway.endpoints["http"]) as client,
    ):
        (fault,) = (await client.get("/health")).json()["mapping_faults"]
        assert fault["file"].endswith("mine.toml")
        assert "topci" in fault["reason"]
        assert "edge_mqtt_mapping_faults 1.0" in (await client.get("/metrics")).text


async def test_many_faults_of_a_mapping_file_keep_health_short(tmp_path):
    (tmp_path / "mappings").mkdir()
    one = '[[mapping]]\nname = "box {0}"\ntopic = "box/{0}"\nobservation = "urn:o{0}"\nunits = "Celcius"\nmin = "x"\n'
    (tmp_path / "mappings" / "mine.toml").write_text("".join(one.format(number) for number in range(50)))
    async with (
        Gateway(settings(tmp_path)) as gateway,
        httpx.AsyncClient(base_url=gateway.endpoints["http"]) as client,
    ):
        (fault,) = (await client.get("/health")).json()["mapping_faults"]
        (file,) = (await client.get("/api/mappings")).json()
    assert (len(fault["faults"]), fault["further_faults"]) == (20, 80)
    assert fault["faults"] == [
        {key: value for key, value in each.items() if (value or key == "reason_values") and key != "text"}
        for each in file["faults"][:20]
    ]
    lines = fault["reason"].splitlines()
    assert lines[:20] == file["fault"].splitlines()[:20]
    assert lines[20:] == [f"80 further faults; edge mapping check {fault['file']} lists them"]


async def test_every_metric_is_documented(tmp_path):
    document = (ROOT / "docs" / "metrics.md").read_text()
    chosen = settings(tmp_path, host={"enabled": True})
    async with Gateway(chosen) as gateway, httpx.AsyncClient() as client:
        text = (await client.get(gateway.endpoints["http"] + "/metrics")).text
    names = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    assert len(names) > 10
    assert [name for name in names if f"`{name}" not in document] == []


async def until_health(client, url, status):
    async def answered():
        answer = await client.get(url)
        return answer if answer.status_code == status else None

    return await eventually(answered, f"{url} to answer with {status}")


async def test_health_reports_a_stalled_writer(tmp_path):
    release = threading.Event()
    async with Gateway(settings(tmp_path, engine={"stall_after": 1})) as gateway, httpx.AsyncClient() as client:
        health = gateway.endpoints["http"] + "/health"
        assert (await client.get(health)).status_code == 200
        stuck = gateway._engine.subscribe(QueryRequest("ASK { }"), lambda _: release.wait(30) and None)
        answer = await until_health(client, health, 503)
        assert "engine.stall_after" in answer.json()["error_description"]
        release.set()
        await asyncio.wrap_future(stuck)
        await until_health(client, health, 200)


async def test_health_reports_a_busy_writer_as_live(tmp_path):
    """Slow is not stuck: the watchdog does not end the process."""
    ended = threading.Event()
    async with Gateway(settings(tmp_path, engine={"stall_after": 1})) as gateway, httpx.AsyncClient() as client:
        health = gateway.endpoints["http"] + "/health"
        slow = [
            gateway._engine.subscribe(
                QueryRequest(f"ASK {{ <urn:{number}> ?p ?o }}"), lambda _: ended.wait(0.3) and None
            )
            for number in range(100)
        ]
        async with asyncio.timeout(20):
            while (answer := await client.get(health)).json()["status"] != "degraded":
                assert answer.status_code == 200
        assert "busy: requests have waited" in answer.json()["engine"]
        assert answer.json()["parts"]["engine"] == "moves"
        ended.set()
        await asyncio.gather(*map(asyncio.wrap_future, slow))
        assert (await client.get(health)).json()["status"] == "ready"


async def test_a_result_beyond_the_limit_is_given_up(tmp_path):
    async with Gateway(settings(tmp_path, http={"max_result": 1024})) as gateway, httpx.AsyncClient() as client:
        values = " ".join(str(number) for number in range(1000))
        for query in (
            f"SELECT ?x {{ VALUES ?x {{ {values} }} }}",
            f"CONSTRUCT {{ <urn:a> <urn:b> ?x }} {{ VALUES ?x {{ {values} }} }}",
        ):
            for accept in ("*/*", "application/xml", "application/n-triples, text/csv"):
                headers = {"Accept": accept, "Content-Type": "application/sparql-query"}
                answer = await client.post(gateway.endpoints["http"] + "/query", content=query, headers=headers)
                assert (answer.status_code, answer.json()["error"]) == (413, "result_too_large")
                assert "http.max_result" in answer.json()["error_description"]


async def test_the_gateway_starts_if_the_endpoints_file_cannot_be_written(tmp_path, caplog):
    (tmp_path / "endpoints.json").mkdir()
    (tmp_path / "mqtt-client-id").write_bytes(b"\xff\xfe")
    async with Gateway(settings(tmp_path)) as gateway, httpx.AsyncClient() as client:
        assert (await client.get(gateway.endpoints["http"] + "/health")).status_code == 200
    assert "endpoints.not_written" in caplog.messages
    assert "mqtt.client_id_unreadable" in caplog.messages
