"""`edge-history receive` as a process, and a client that sends segments like a gateway."""

from __future__ import annotations

import base64
import hashlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from edge.outbox.observation import Cells, ObservationContext
from edge.outbox.segment import MANIFEST, ROWS, SegmentManifest, line, packed
from spark_offload.gateways import Gateways

COMMAND = [sys.executable, "-c", "from spark_offload.cli import main; main()"]
EPOCH = "0123456789abcdef"


class Receiver:
    """The process. It accepts the gateways `g1` and `g2`."""

    def __init__(self, folder: Path, *options: str, prefix: Sequence[str] = ()) -> None:
        self.landing = folder / "landing"
        self.landing.mkdir(exist_ok=True)
        self.file = folder / "gateways.json"
        gateways = Gateways(self.file)
        self.tokens = {name: gateways.add(name) for name in ("g1", "g2")}
        self._command = [
            *prefix,
            *COMMAND,
            "receive",
            f"--landing={self.landing}",
            f"--tokens={self.file}",
            *options,
        ]
        self._log = folder / "receiver.log"
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self, listen: str = "127.0.0.1:0") -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [*self._command, f"--listen={listen}"], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        reported = self.process.stdout.readline()
        assert reported.startswith("receiving on "), self.log()
        self.url = reported.removeprefix("receiving on ").strip()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    def log(self) -> str:
        return self._log.read_text()

    def client(self, gateway: str = "g1") -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.tokens[gateway]}"}, timeout=30, trust_env=False
        )


def segment(
    first: int, last: int, *, gateway: str = "g1", epoch: str = EPOCH, values: int = 0
) -> tuple[SegmentManifest, bytes]:
    """Return a segment with these values."""
    context = ObservationContext(series="http://example.org/o")
    rows = packed(line(seq, 1, Cells(seq * 1000, str(seq + values))) for seq in range(first, last + 1))
    digest = hashlib.sha256(rows).hexdigest()
    manifest = SegmentManifest(gateway, epoch, first, last, first * 1000, last * 1000, len(rows), digest, {1: context})
    return manifest, rows


def path(manifest: SegmentManifest, end: str = ROWS) -> str:
    return f"/v1/segments/{manifest.folder}/{manifest.stem}{end}"


def reported(offset: int, *, whole: bytes | None = None) -> dict[str, str]:
    """Return the header of a part; `whole` is the length of the file, in the last part."""
    header = {"Upload-Offset": str(offset), "Upload-Complete": "?0"}
    if whole is not None:
        header |= {"Upload-Complete": "?1", "Repr-Digest": digest(whole)}
    return header


def digest(content: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def send(client: httpx.Client, url: str, content: bytes, size: int = 1 << 20) -> httpx.Response:
    """Send a file from its confirmed offset on, in parts of this many bytes. Return the last answer."""
    here = client.head(url)
    if here.headers.get("Upload-Complete") == "?1":
        return here
    offset = int(here.headers.get("Upload-Offset", 0))
    while True:
        part = content[offset : offset + size]
        last = offset + len(part) == len(content)
        answer = client.patch(url, content=part, headers=reported(offset, whole=content if last else None))
        if last or answer.status_code != 204:
            return answer
        offset += len(part)


def ship(client: httpx.Client, manifest: SegmentManifest, rows: bytes) -> None:
    """Ship a whole segment."""
    for url, content in ((path(manifest), rows), (path(manifest, MANIFEST), manifest.to_json())):
        answer = send(client, url, content)
        assert answer.status_code in (200, 201, 204), answer.text
