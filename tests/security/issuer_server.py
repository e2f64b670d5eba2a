"""An external authorization server: publishes keys over HTTP, signs tokens, and can misbehave."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

NAME = "https://issuer.example/realms/home"

Reply = tuple[int, dict[str, str], bytes]


class Server:
    """The server. `keys`: the published keys by key id; `reply` replaces them, if set."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._scheme = "http" if tls is None else "https"
        self.keys: dict[str, Any] = {}
        self.reply: Callable[[], Reply] | None = None
        self.fetched = 0
        self.go_on = threading.Event()
        self.add("first")
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.fetched += 1
                status, headers, body = (server.reply or server._keys)()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):  # the gateway may have closed the connection
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=lambda: self._http.serve_forever(0.05))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_address[1]}/certs"

    def close(self) -> None:
        self.go_on.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def add(self, kid: str, key: Any = None) -> Any:
        self.keys[kid] = key or rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return self.keys[kid]

    def jwks(self) -> list[dict[str, Any]]:
        return [as_jwk(key, kid) for kid, key in self.keys.items()]

    def publish(self, document: object) -> None:
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.reply = lambda: (200, {"Content-Type": "application/json"}, text)

    def _keys(self) -> Reply:
        return 200, {"Content-Type": "application/json"}, json.dumps({"keys": self.jwks()}).encode()

    def token(
        self, kid: str = "first", *, key: Any = None, algorithm: str = "", header: Any = None, **claims: Any
    ) -> str:
        key = key or self.keys[kid]
        algorithm = algorithm or ("ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256")
        now = int(time.time())
        payload = {"iss": NAME, "aud": "sepa-edge", "sub": "lamp", "iat": now, "exp": now + 600, **claims}
        payload = {name: value for name, value in payload.items() if value is not None}
        # Not with `jwt.encode`, which refuses some tokens that the gateway must refuse.
        return jwt.api_jws.encode(json.dumps(payload).encode(), key, algorithm, {"kid": kid, **(header or {})})


def as_jwk(key: Any, kid: str) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
    )
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}


def pem(key: Any) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
