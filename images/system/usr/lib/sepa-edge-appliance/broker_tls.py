#!/usr/bin/python3 -I
"""The broker's copy of the gateway's certificate, which the broker may not read (edge-broker-tls.path)."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from files import make_directory, write

TLS = Path("/data/sepa-edge/tls")
COPY = Path("/data/mosquitto/tls")
NAMES = ("server.key", "server.pem")


def copy() -> bool:
    """Whether it was another one until now. Raises `ssl.SSLError` where key and certificate never go together."""
    make_directory(COPY, "mosquitto", 0o700)
    for attempt in range(10):
        found = {name: (TLS / name).read_bytes() for name in NAMES}
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(TLS / "server.pem", TLS / "server.key")
        except ssl.SSLError:  # the gateway is about to write the other one
            if attempt == 9:
                raise
            time.sleep(1)
        else:
            if all((TLS / name).read_bytes() == found[name] for name in NAMES):
                break
    changed = any(not (COPY / name).exists() or (COPY / name).read_bytes() != found[name] for name in NAMES)
    for name in NAMES:
        write(COPY / name, found[name], "mosquitto", 0o600)
    return changed


if __name__ == "__main__" and copy():
    # Mosquitto reads the certificates again, without closing connections.
    subprocess.run(["systemctl", "reload-or-restart", "mosquitto.service"], check=True)
