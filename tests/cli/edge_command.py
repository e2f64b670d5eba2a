"""The `edge` command as a separate process, with a gateway of its own if needed."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.commands import run_edge
from tests.support.gateway_forks import GatewayFork
from tests.support.waiting import PATIENCE, wait_for

DEADLINE = PATIENCE
"""Seconds after which a test gives up waiting."""

FREE_PORTS = {"EDGE__HTTP__PORT": "0", "EDGE__WS__PORT": "0", "EDGE__MQTT__PORT": "0"}
GATEWAY = {**FREE_PORTS, "EDGE__HOST__INTERVAL": "1"}
"""Settings of a gateway, unless a test has others."""


@dataclass
class Edge:
    """The command, in an environment without settings and with its own home directory."""

    home: Path
    started: list[subprocess.Popen | GatewayFork] = field(default_factory=list)

    def environ(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGE_")}
        kept.pop("STATE_DIRECTORY", None)
        return {**kept, "HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state"), "NO_COLOR": "1", **more}

    def __call__(self, *arguments, input=None, environ=None, cwd=None):  # noqa: A002 - as subprocess.run has it
        kept = self.environ()
        return run_edge(arguments, kept, changed=environ, text=input, seconds=DEADLINE, directory=cwd)

    def start(self, *arguments, environ=None, **more):
        process = subprocess.Popen(
            [sys.executable, "-m", "edge", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=more.pop("stdout", subprocess.PIPE),
            stderr=more.pop("stderr", subprocess.PIPE),
            text=True,
            env=self.environ(**(environ or {})),
            **more,
        )
        self.started.append(process)
        return process

    def fork(self, *arguments, environ, output):
        """Start a gateway without a new interpreter. `output`: for its standard output and error."""
        process = GatewayFork([str(argument) for argument in arguments], self.environ(**environ), output, None)
        self.started.append(process)
        return process

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            if isinstance(process, GatewayFork):
                process.wait(DEADLINE)
            else:
                process.communicate()


@dataclass
class Running:
    """A gateway in a separate process."""

    process: subprocess.Popen | GatewayFork
    data_dir: Path
    endpoints: dict
    output: Path

    def stop(self, number=signal.SIGTERM):
        """Stop the gateway and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)

    def log(self):
        lines = self.output.with_suffix(".err").read_text().splitlines()
        # A forked gateway has one file for both outputs, so the greeting may be in it.
        return [json.loads(line) for line in lines if line.startswith("{")]


def launch(edge, data_dir, *arguments, **environ):
    """Start a gateway on free ports, forked from a process that has imported it, and wait until it is ready."""
    output = data_dir.parent / f"{data_dir.name}.out"
    environ = {**GATEWAY, **environ}
    with output.with_suffix(".err").open("wb") as log:
        process = edge.fork("run", "--data-dir", data_dir, *arguments, environ=environ, output=log)
    return _ready(process, data_dir, output)


def launch_command(edge, data_dir, *arguments, **environ):
    """Do the same with a new interpreter, and with separate files for standard output and error."""
    output = data_dir.parent / f"{data_dir.name}.out"
    environ = {**GATEWAY, **environ}
    with output.open("w") as out, output.with_suffix(".err").open("w") as err:
        process = edge.start("run", "--data-dir", data_dir, *arguments, environ=environ, stdout=out, stderr=err)
    return _ready(process, data_dir, output)


def _ready(process, data_dir, output):
    file = data_dir / "endpoints.json"
    wait_for(lambda: file.exists() or process.poll() is not None, f"{file} exists")
    assert process.poll() is None, output.with_suffix(".err").read_text()
    return Running(process, data_dir, json.loads(file.read_text()), output)
