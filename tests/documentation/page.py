"""Run the examples of a page of documentation as its reader does, and compare the output with the page.

The kind of a block follows from its first line, and from a comment before it:

- `toml`, `yaml`, `python` … with `title="NAME"`: a file of the reader's directory.
- `console`: commands after `$ `, each followed by its output. `…` stands for any text, a time for any time.
- `sh`: commands that succeed. The page does not show their output.
- `<!-- listen: NAME -->`: a command that keeps running in a terminal of its own, and its first output.
- `<!-- prints: NAME -->`: what such a command prints next.
- `<!-- not run: REASON -->`: a command for another machine, say.
- `<!-- any order -->`, or `<!-- prints: NAME, any order -->`: the rows of a result have no order.
- A line with an image is a screenshot of the gateway's page at this point.
- `text` without a comment is an illustration.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.processes import GatewayProcess
from tests.support.waiting import PATIENCE, wait_for

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(
    r"(?:^<!-- (?P<role>[a-z ]+)(?:: (?P<name>[^>]*?))? -->\n)?"
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$"
    r"|^!\[[^\]]*\]\((?P<image>[^)]+)\)$",
    re.MULTILINE | re.DOTALL,
)
_REPEATABLE = ("edge query", "edge timers", "edge health", "curl", "ls", "edge set ")
"""Commands that wait for readings that the gateway has yet to process. They are repeated until their output matches."""
_TIME = re.compile(r"(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """One example."""

    role: str
    name: str
    language: str
    title: str
    text: str
    image: str

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands, each with the output that the page shows. A command may have several lines."""
        if self.language == "sh":
            return [(self.text, "…")]
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        assert parts[0] == "", f"a console begins with a command:\n{self.text}"
        return [split_command(part) for part in parts[1:]]


def split_command(text: str) -> tuple[str, str]:
    """Split at the first line break at which the command is complete."""
    lines = text.splitlines()
    for end in range(1, len(lines) + 1):
        command = "\n".join(lines[:end])
        complete = subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False)
        if complete.returncode == 0 and not complete.stderr and not command.endswith("\\"):
            return command, "\n".join(lines[end:])
    raise AssertionError(f"not a command:\n{text}")


def blocks(page: str) -> list[Block]:
    """Return the examples of a page, in order."""
    text = (DOCS / page).read_text("utf-8")
    found = [Block(**{key: value or "" for key, value in match.groupdict().items()}) for match in _BLOCK.finditer(text)]
    assert sum(bool(block.language) for block in found) == len(re.findall(r"^```\w", text, re.MULTILINE)), page
    return found


def matches(shown: str, printed: str, *, any_order: bool = False) -> bool:
    """Tell whether an output is the one that a page shows."""
    expected, found = (
        [line.rstrip() for line in _TIME.sub("TIME", text).strip().splitlines()] for text in (shown, printed)
    )
    if any_order:
        expected, found = sorted(expected), sorted(found)
    pattern = re.escape("\n".join(expected)).replace("…", ".*")
    return re.fullmatch(pattern, "\n".join(found), re.DOTALL) is not None


class Reader:
    """A shell, a home directory, and a gateway with the default data directory below it."""

    def __init__(self, home: Path, settings: dict[str, str] | None = None) -> None:
        self.home = home
        self.gateway = GatewayProcess(
            home / ".local/state/sepa-edge", {"EDGE__HOST__ENABLED": "false", **(settings or {})}
        )
        self.endpoints = self.gateway.start()
        ports = {name: str(urlsplit(self.endpoints[key]).port) for name, key in _PORTS.items()}
        self._ports = ports
        options = home / ".config"
        options.mkdir()
        for program in ("mosquitto_pub", "mosquitto_sub"):
            (options / program).write_text(f"-p {ports['1883']}\n")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("EDGE", "XDG"))}
        environment |= {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "100",
            "PYTHONUNBUFFERED": "1",
        }
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._listeners: dict[str, Path] = {}
        self._read: dict[str, int] = {}

    def close(self) -> None:
        """End the shell, its listeners and the gateway."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._run("kill $(jobs -p) 2>/dev/null; wait")
        self._shell.stdin.close()
        self._shell.wait(10)
        self._shell.stdout.close()
        self.gateway.stop()

    def do(self, block: Block) -> None:
        """Do what a block says, and compare the output."""
        if block.role == "not run" or (block.language == "text" and not block.role):
            return
        name = block.name.removesuffix(", any order")
        any_order = block.role == "any order" or name != block.name
        if block.title:
            self._write(block.title, block.text)
        elif block.role == "listen":
            ((command, shown),) = block.commands()
            self._listen(name, command)
            self._expect(name, shown, any_order=any_order)
        elif block.role == "prints":
            self._expect(name, block.text, any_order=any_order)
        elif block.language in ("console", "sh"):
            assert block.role in ("", "any order"), block.role
            for command, shown in block.commands():
                self._check(command, shown, any_order=any_order, may_fail=block.language == "console")
        else:
            raise AssertionError(f"neither a file nor a command: {block}")

    def _check(self, command: str, shown: str, *, any_order: bool, may_fail: bool) -> None:
        printed, code = "", 0

        def matched() -> bool:
            nonlocal printed, code
            printed, code = self._run(self._here(command))
            return matches(self._here(shown), printed, any_order=any_order)

        if not matched():
            assert command.startswith(_REPEATABLE), f"$ {command}\n{printed}\n--- instead of\n{shown}"
            try:
                wait_for(matched)
            except AssertionError:
                raise AssertionError(f"$ {command}\n{printed}\n--- instead of\n{shown}") from None
        assert may_fail or code == 0, f"$ {command}\n{printed}"
        self._wait_for_mapping_files()

    def _wait_for_mapping_files(self) -> None:
        """The gateway looks for changed files every two seconds, and a reader is slower than that."""
        for file in (self.gateway.data_dir / "mappings").glob("*.*"):
            wait_for(lambda file=file: self._read_events(file.name), what=f"the gateway reads {file.name}")

    def _read_events(self, name: str) -> bool:
        lines = (json.loads(line) for line in self.gateway.log().splitlines() if line.startswith("{"))
        return any(line["event"] == "mappings.file_read" and name in json.dumps(line) for line in lines)

    def _write(self, name: str, text: str) -> None:
        directory, _ = self._run("pwd")
        (Path(directory.strip()) / name).write_text(self._here(text), "utf-8")

    def _here(self, text: str) -> str:
        """Return a text with the ports of this gateway in the place of the default ones."""
        return re.sub(r"\b(8000|9000|1883)\b", lambda match: self._ports[match[1]], text)

    def _listen(self, name: str, command: str) -> None:
        output = self.home / f".{name}.output"
        output.touch()
        _, code = self._run(f"stdbuf -oL env {self._here(command)} >{output} 2>&1 &")
        assert code == 0, command
        self._listeners[name] = output
        self._read[name] = 0

    def _expect(self, name: str, shown: str, *, any_order: bool) -> None:
        """Wait until a listener has printed what the page shows, and nothing else since the last time."""

        def printed() -> bool:
            text = self._listeners[name].read_text("utf-8")
            return matches(shown, text[self._read[name] :], any_order=any_order)

        try:
            wait_for(printed)
        except AssertionError:
            text = self._listeners[name].read_text("utf-8")[self._read[name] :]
            raise AssertionError(f"{name} printed:\n{text}\n--- instead of\n{shown}") from None
        self._read[name] = len(self._listeners[name].read_text("utf-8"))

    def _run(self, command: str) -> tuple[str, int]:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f'{{ {command}\n}} </dev/null\ncode=$?; echo; echo "done: $code"\n'.encode())
        self._shell.stdin.flush()
        output = b""
        while not (end := re.search(rb"\ndone: (\d+)\n\Z", output)):
            ready, _, _ = select.select([self._shell.stdout], [], [], PATIENCE)
            assert ready, f"$ {command}\nhas not ended; it printed:\n{output.decode()}"
            part = os.read(self._shell.stdout.fileno(), 65536)
            assert part, f"the shell has ended: {command}"
            output += part
        return output[: end.start()].decode(), int(end[1])


_PORTS = {"8000": "http", "9000": "ws", "1883": "mqtt"}
