"""The broker's copy of the gateway's certificate, which the broker may not read (edge-broker-tls.path)."""

from __future__ import annotations

import ssl
import subprocess
import time
from pathlib import Path

from sepa_edge_appliance.files import make_directory, write

TLS = Path("/data/sepa-edge/tls")
COPY = Path("/data/mosquitto/tls")
NAMES = ("server.key", "server.pem")


def copy() -> bool:
    """Copy the certificate, and return whether it changed. Raises `ssl.SSLError` if key and certificate never match."""
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
