"""A broker with the interface of the reference engine: updates over HTTP only, subscriptions over WebSocket.

It knows one query, and a test sets its result.
"""

import asyncio
import itertools
import json
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from websockets.asyncio.server import serve

from edge.client import Endpoints


class ReferenceBroker:
    """The broker.

    It records requests in `updates`, `subscribes` and `headers`. With a `token`, it refuses all others.
    """

    def __init__(self):
        self.updates = []
        self.subscribes = []
        self.headers = []
        self.token = None
        self.rows = []
        self.burst = []
        self.endpoints = Endpoints()
        self.sockets = set()
        self.echoes_alias = True
        self._numbers = itertools.count()

    async def notify(self, sequence, added, removed):
        for socket in self.sockets:
            body = {"spuid": socket.spuid, "sequence": sequence, "addedResults": results(added)}
            await socket.send(json.dumps({"notification": {**body, "removedResults": results(removed)}}))

    async def serve(self, socket):
        async for text in socket:
            message = json.loads(text)
            (kind,) = message
            body = message[kind]
            if kind == "unsubscribe":
                await socket.send(json.dumps({"unsubscribed": {"spuid": body["spuid"]}}))
                continue
            assert kind == "subscribe", "the reference engine knows nothing else"
            self.subscribes.append(body)
            alias = {"alias": body["alias"]} if self.echoes_alias else {}
            if self.token is not None and body.get("authorization") != f"Bearer {self.token}":
                await socket.send(json.dumps({"error": "invalid_grant", "status_code": 401, **alias}))
            elif "SELECT" not in body["sparql"]:
                error = {"error": "sparql11se_exception", "error_description": "Encountered x", "status_code": 500}
                await socket.send(json.dumps({**error, **alias}))
            else:
                socket.spuid = f"sepa://subscription/{next(self._numbers)}"
                self.sockets.add(socket)
                first = {"spuid": socket.spuid, "sequence": 0, "addedResults": results(self.rows), "removedResults": {}}
                await socket.send(json.dumps({"notification": {**first, **alias}}))
                for sequence, (added, removed) in enumerate(self.burst, 1):
                    await self.notify(sequence, added, removed)
        self.sockets.discard(socket)


def results(numbers):
    binding = [
        {"n": {"type": "literal", "value": str(n), "datatype": "http://www.w3.org/2001/XMLSchema#integer"}}
        for n in numbers
    ]
    return {"head": {"vars": ["n"]}, "results": {"bindings": binding}}


def _handler(broker):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.answer(404, {"error": "not_found", "error_description": "?", "status_code": 404})

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            broker.headers.append(dict(self.headers.items()))
            if broker.token is not None and self.headers.get("Authorization") != f"Bearer {broker.token}":
                self.answer(401, {"error": "invalid_grant", "error_description": "no", "status_code": 401})
            elif self.path == "/query":
                self.answer(200, results(broker.rows))
            else:
                broker.updates.append(body)
                self.answer(200, {"response": {"body": "done", "isJson": False}})

        def answer(self, status, message):
            text = json.dumps(message).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    return Handler


@asynccontextmanager
async def reference_broker():
    broker = ReferenceBroker()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(broker))
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        async with serve(broker.serve, "127.0.0.1", 0) as server:
            ws_port = server.sockets[0].getsockname()[1]
            broker.endpoints = Endpoints.at("127.0.0.1", http_port=http.server_port, ws_port=ws_port)
            yield broker
    finally:
        await asyncio.to_thread(http.shutdown)
        thread.join()
        http.server_close()
