"""Standalone Spark cluster on this machine: a master, and workers that are added one by one."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Final, Self

import pyspark

from edge.bench.experiment import ExperimentError

_PATIENCE: Final = 60.0
"""Timeout in seconds for the start or the end of a process."""
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """Context manager of a cluster. It stops all processes at the end."""

    def __init__(self, directory: Path) -> None:
        """Use `directory` for logs and for the files of workers."""
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""
        """URL of the master."""

    def __enter__(self) -> Self:
        """Start the master. Raises `ExperimentError` if it does not start."""
        self._start("master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        # The master chooses a free port, and reports it in its log only.
        self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def add_worker(self, cores: int = 1, memory: str = "1g") -> None:
        """Start a worker and wait until it has registered with the master. Raises `ExperimentError`."""
        name = f"worker-{len(self._processes)}"
        own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--work-dir", str(self._directory / name))
        self._start(name, _WORKER, *own, "--cores", str(cores), "--memory", memory, self.master)
        self._said(name, r"(Successfully registered with master)")

    def _start(self, name: str, program: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        # Without SPARK_LOCAL_IP Spark would bind to the address of the host name.
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        with (self._directory / f"{name}.log").open("wb") as log:
            command = [str(home / "bin" / "spark-class"), program, *arguments]
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
            )

    def _said(self, name: str, pattern: str) -> str:
        log = self._directory / f"{name}.log"
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self._processes[-1].poll() is None:
            if found := re.search(pattern, log.read_text(errors="replace")):
                return found[1]
            time.sleep(0.05)
        raise ExperimentError(f"Spark's {name} does not come up:\n{log.read_text(errors='replace')}")
