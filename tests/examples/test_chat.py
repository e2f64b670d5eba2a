"""The chat as in its README, each client a process: Figure 8 of the SEPA paper, and the stream of its section 5.5."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from edge.jsap import Profile
from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat"
PERSON = "http://schema.org/Person-"
ROLES = {"SENT": "receiver", "RECEIVED": "sender"}
"""The queries, and the variable for the client in each."""
PEOPLE = """SELECT ?person ?name { ?person a <http://schema.org/Person> ; <http://schema.org/name> ?name }"""


class Client:
    """`client.py` in a terminal, with its output line by line."""

    def __init__(self, profile: Path, me: str, other: str) -> None:
        command = [sys.executable, str(EXAMPLE / "client.py"), me, other, "--profile", str(profile)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.shown: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._greeting = f"You are {me}. Type to {other}; Ctrl-D ends."
        self.shows(self._greeting)

    def type(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.flush()

    def shows(self, line: str) -> None:
        wait_for(lambda: line in self.shown or self._process.poll() is not None, what=line)
        assert line in self.shown, self.shown

    def ends(self) -> list[str]:
        """Press Ctrl-D; return the output except the greeting, without times."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(20) == 0, self.shown
        self._reader.join()
        self.shown.remove(self._greeting)
        return ["    received" if line.startswith("    received at ") else line for line in self.shown]

    def clean(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.shown.append(line.rstrip("\n"))


class Chat:
    """A gateway, and clients that connect and disconnect."""

    def __init__(self, directory: Path) -> None:
        settings = {"EDGE__HOST__ENABLED": "false", "EDGE__MQTT__ENABLED": "false"}
        self._gateway = GatewayProcess(directory / "data", settings)
        self.endpoints = self._gateway.start()
        self._clients: list[Client] = []
        self._profile = directory / "here.json"
        http, ws = (httpx.URL(self.endpoints[name]).port for name in ("http", "ws"))
        here = {
            "include": str(EXAMPLE / "client.yaml"),
            "sparql11protocol": {"port": http},
            "sparql11seprotocol": {"availableProtocols": {"ws": {"port": ws}}},
        }
        self._profile.write_text(json.dumps(here))
        self.profile = Profile.load(self._profile)

    def join(self, me: str, other: str) -> Client:
        self._clients.append(Client(self._profile, me, other))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.clean()
        self._gateway.stop()

    def rows(self, sparql: str) -> list[dict[str, str]]:
        answer = httpx.post(f"{self.endpoints['http']}/query", data={"query": sparql}, trust_env=False).json()
        return [{name: term["value"] for name, term in row.items()} for row in answer["results"]["bindings"]]

    def is_clean(self) -> bool:
        """Return whether only the people are left, each with a type and a name."""
        return len(self.rows("SELECT * { ?s ?p ?o }")) == 2 * len(self.rows(PEOPLE))


class Watcher:
    """A subscriber to the queries of the agents on one connection, so that it sees the changes in order."""

    def __init__(self, chat: Chat, socket: ClientConnection, *subscriptions: tuple[str, str, str]) -> None:
        self._socket = socket
        for query, variable, name in subscriptions:
            text = chat.profile.query(query).text({variable: PERSON + name})
            socket.send(json.dumps({"subscribe": {"sparql": text, "alias": f"{query} {name}"}}))
            assert self._told()["sequence"] == 0

    def changes(self, count: int) -> list[tuple[str, str, dict[str, str]]]:
        """Return the next changes: the query, `+` or `-`, and the row."""
        found: list[tuple[str, str, dict[str, str]]] = []
        while len(found) < count:
            reported = self._told()
            for sign, member in (("-", "removedResults"), ("+", "addedResults")):
                rows = reported[member]["results"]["bindings"]
                found += [
                    (reported["alias"], sign, {name: term["value"] for name, term in row.items()}) for row in rows
                ]
        return found

    def is_told_no_more(self) -> bool:
        try:
            self._socket.recv(0.3)
        except TimeoutError:
            return True
        return False

    def _told(self) -> dict[str, Any]:
        return json.loads(self._socket.recv(20))["notification"]


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    chat = Chat(tmp_path)
    yield chat
    chat.close()


def test_the_sequence_of_figure_8(chat: Chat) -> None:
    anna, bob = chat.join("Anna", "Bob"), chat.join("Bob", "Anna")
    every = [(query, role, name) for name in ("Anna", "Bob") for query, role in ROLES.items()]
    with connect(chat.endpoints["ws"], proxy=None) as socket:
        watcher = Watcher(chat, socket, *every)
        anna.type('Ciao "Bob" } ; DROP ALL #')
        sent, received, *removed = watcher.changes(4)
        message = sent[2]["message"]
        assert sent[:2] == ("SENT Bob", "+")
        assert sent[2] == {
            "message": message,
            "sender": f"{PERSON}Anna",
            "name": "Anna",
            "text": 'Ciao "Bob" } ; DROP ALL #',
            "time": sent[2]["time"],
        }
        assert received == ("RECEIVED Anna", "+", {"message": message, "time": received[2]["time"]})
        assert sent[2]["time"] <= received[2]["time"]
        # One update removes it from both results; the protocol does not define which is notified first.
        assert sorted(removed, key=lambda change: change[0]) == [
            ("RECEIVED Anna", "-", received[2]),
            ("SENT Bob", "-", sent[2]),
        ]
        assert watcher.is_told_no_more()
    bob.shows("    Anna knows that you got it")
    assert chat.is_clean()
    assert anna.ends() == ["    received"]
    assert bob.ends() == ['Anna: Ciao "Bob" } ; DROP ALL #', "    Anna knows that you got it"]


def test_a_hundred_messages_to_oneself(chat: Chat) -> None:
    texts = [f"message {number}" for number in range(100)]
    anna = chat.join("Anna", "Anna")
    with connect(chat.endpoints["ws"], proxy=None) as socket:
        watcher = Watcher(chat, socket, *((query, role, "Anna") for query, role in ROLES.items()))
        anna.type(*texts)
        changes = watcher.changes(400)
        assert watcher.is_told_no_more()
    seen: dict[str, list[tuple[str, str]]] = {}
    for alias, sign, row in changes:
        seen.setdefault(row["message"], []).append((alias, sign))
    assert [row["text"] for alias, sign, row in changes if (alias, sign) == ("SENT Anna", "+")] == texts
    for each in seen.values():
        assert each[:2] == [("SENT Anna", "+"), ("RECEIVED Anna", "+")]
        assert sorted(each[2:]) == [("RECEIVED Anna", "-"), ("SENT Anna", "-")]
    assert len(seen) == 100
    wait_for(lambda: len(anna.shown) == 1 + 3 * 100, what="all that the client has to show")
    assert chat.is_clean()
    shown = anna.ends()
    assert [line for line in shown if not line.startswith("    ")] == [f"Anna: {text}" for text in texts]
    assert shown.count("    received") == shown.count("    Anna knows that you got it") == 100


def test_an_absent_user_gets_the_message_later(chat: Chat) -> None:
    anna = chat.join("Anna", "Bob")
    anna.type("too early")
    anna.shows("    not sent: Bob has never joined")
    chat.join("Bob", "Anna").ends()
    anna.type("are you there?")
    wait_for(lambda: not chat.is_clean(), what="the message in the store")
    assert anna.ends() == ["    not sent: Bob has never joined"]
    bob = chat.join("Bob", "Anna")
    bob.shows("Anna: are you there?")
    assert not chat.is_clean()
    anna = chat.join("Anna", "Bob")
    bob.shows("    Anna knows that you got it")
    assert chat.is_clean()
    assert anna.ends() == ["    received"]


def test_user_name_may_contain_any_characters(chat: Chat) -> None:
    me = 'Ann "} é <x>'
    client = chat.join(me, me)
    client.type("it's me")
    client.shows(f"    {me} knows that you got it")
    client.ends()
    assert [row["name"] for row in chat.rows(PEOPLE)] == [me]
    assert chat.is_clean()
