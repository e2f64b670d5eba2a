"""Ingesters that are killed repeatedly with `kill -9`, while segments arrive, are damaged, duplicated and deleted.

In the end every observation is in the table exactly once. `EDGE_HISTORY_KILLS=100` sets the number of kills (a few in
CI), and `EDGE_HISTORY_SEED` repeats the story of a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pytest
from history_data import EX, MIDNIGHT, SECOND
from ingest_sender import Sender, rows_of

from edge.outbox.observation import XSD, Cells, ObservationContext
from spark_offload.session import java
from tests.support.waiting import wait_for

KILLS = int(os.environ.get("EDGE_HISTORY_KILLS", "4"))
SEED = int(os.environ.get("EDGE_HISTORY_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
PATIENCE = 900.0
"""Seconds for an ingester to reach the point of its kill."""
OBSERVATIONS = 40 * (KILLS + 4)
"""Observations of each outbox."""
MOMENTS = ("part", "commit", "acknowledged", "any", "start", "commit")
COMMAND = Path(sys.executable).with_name("edge-history")


class World:
    """Three outboxes, a landing zone, a table."""

    def __init__(self, folder: Path, drawn: random.Random) -> None:
        self.folder = folder
        self.landing = folder / "landing"
        self.table = folder / "table"
        self.landing.mkdir()
        self._drawn = drawn
        self._began = 0
        self.senders = [
            Sender(self.landing, _observations(f"{gateway}-{epoch}"), gateway, f"{epoch:016x}")
            for gateway, epoch in (("box-1", 1), ("box-2", 2), ("box-2", 3))
        ]
        self._sent = dict.fromkeys(range(len(self.senders)), 0)

    def tick(self) -> None:
        """Perform a random action."""
        number = self._drawn.randrange(len(self.senders))
        sender = self.senders[number]
        # Some work always remains for later kills.
        most = OBSERVATIONS * self._began // (KILLS + 1)
        self._sent[number] = min(self._sent[number] + self._drawn.randrange(20), most)
        if self._drawn.random() < 0.6:
            sender.send_again(self._sent[number], self._drawn.choice((5, 10, 10, 17)))
        if self._drawn.random() < 0.2:
            self._harm(sender)

    def finish(self) -> bool:
        """Send missing observations; return whether all are acknowledged."""
        for sender in self.senders:
            sender.send_again(OBSERVATIONS)
        return all(sender.acknowledged == OBSERVATIONS for sender in self.senders)

    def _harm(self, sender: Sender) -> None:
        waiting = sorted(sender.folder.glob("*.json"))
        if not waiting:
            return
        manifest = self._drawn.choice(waiting)
        rows = rows_of(manifest)
        with contextlib.suppress(FileNotFoundError):  # the ingester may be reading it
            match self._drawn.randrange(5):
                case 0:
                    rows.write_bytes(rows.read_bytes()[: rows.stat().st_size // 2])
                case 1:
                    content = bytearray(rows.read_bytes())
                    content[len(content) // 2] ^= 0x55
                    rows.write_bytes(content)
                case 2:
                    rows.unlink()
                case 3:
                    manifest.unlink()
                case 4:
                    manifest.write_bytes(manifest.read_bytes()[:40])

    @contextlib.contextmanager
    def ingester(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run an ingester in a loop; end it and its child processes on exit."""
        self._began += 1
        with (self.folder / f"ingester-{self._began}.log").open("wb") as log:
            process = subprocess.Popen(
                [COMMAND, "ingest", "--landing", self.landing, "--table", self.table, "--every", "0.2s", "--keep", "1s",
                 "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=1",
                 "--conf", "spark.databricks.delta.snapshotPartitions=1"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def await_moment(self, moment: str, process: subprocess.Popen[bytes]) -> None:
        """Perform actions until this moment."""
        if moment == "start":
            end = time.monotonic() + self._drawn.uniform(0, 6)
            self._until(lambda: time.monotonic() > end, process)
            return
        state = {"part": self._parts, "commit": self._commits, "acknowledged": self._acknowledgements}
        look = state.get(moment, self._commits)
        before = look()
        self._until(lambda: look() != before, process)
        if moment == "any":
            time.sleep(self._drawn.uniform(0, 2))

    def _until(self, met: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        ticked = 0.0

        def met_after_ticks() -> bool:
            nonlocal ticked
            assert process.poll() is None, self.log()
            if time.monotonic() - ticked > 0.1:
                self.tick()
                ticked = time.monotonic()
            return met()

        wait_for(met_after_ticks, "the ingester", seconds=PATIENCE)

    def log(self) -> str:
        """Return the log of the last ingester."""
        return (self.folder / f"ingester-{self._began}.log").read_text(errors="replace")[-4000:]

    def _parts(self) -> int:
        return sum(1 for _ in self.table.glob("date=*/*.parquet"))

    def _commits(self) -> int:
        return sum(1 for _ in self.table.glob("_delta_log/*.json"))

    def _acknowledgements(self) -> list[int]:
        return [sender.acknowledged for sender in self.senders]


def _observations(name: str) -> list[tuple[ObservationContext, Cells]]:
    context = ObservationContext(series=f"{EX}{name}", sensor=f"{EX}sensor/{name}", datatype=XSD + "integer")
    # Three days, so that a commit has several files.
    return [(context, Cells(MIDNIGHT + number * 86400 * SECOND // 7, str(number))) for number in range(OBSERVATIONS)]


@pytest.mark.timeout(0)  # each wait has a deadline
def test_each_observation_once_after_kills(tmp_path: Path) -> None:
    if not java():
        pytest.skip("no Java: install the package openjdk-17-jre-headless")
    drawn = random.Random(SEED)
    print(f"EDGE_HISTORY_SEED={SEED}")
    world = World(tmp_path, drawn)
    for number in range(KILLS):
        with world.ingester() as process:
            world.await_moment(MOMENTS[number % len(MOMENTS)], process)
            if number % 2:
                process.kill()  # Spark's JVM notices by itself; the next ingester starts meanwhile
                time.sleep(drawn.uniform(0, 0.3))
    with world.ingester() as process:

        def finished() -> bool:
            assert process.poll() is None, world.log()
            return world.finish()

        wait_for(finished, "all observations in the table", seconds=PATIENCE)
        process.terminate()
        assert process.wait(PATIENCE) == 0, world.log()
    table = deltalake.DeltaTable(world.table).to_pyarrow_table(columns=["gateway", "epoch", "seq", "value", "lost"])
    found = sorted(tuple(row.values()) for row in table.to_pylist())
    assert found == [
        (sender.gateway, sender.epoch, seq, float(seq - 1), None)
        for sender in world.senders
        for seq in range(1, OBSERVATIONS + 1)
    ]
