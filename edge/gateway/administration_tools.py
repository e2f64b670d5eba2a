"""Administration commands that the gateway runs for operators without a shell: `edge doctor` and `edge backup`.

Each runs in a process of its own, with the environment of the gateway and at a low priority: it checks the gateway from
outside, and its memory is free again afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from edge.protocol.errors import EdgeError, InvalidRequest, RequestTimeout, TooManyRequests

_log = logging.getLogger(__name__)

_EXAMINATION: Final = 120.0
"""Seconds for all checks. On a Raspberry Pi they take some ten seconds."""
_SAYS: Final = "edge: "
"""Begin of the messages of commands."""
_CHUNK: Final = 64 * 1024
_SILENCE: Final = 120.0
"""Seconds without a part of a backup after which it is given up; before its first byte it copies the journal."""
_UPLOAD: Final = 3_600.0
"""Seconds for a whole backup that is restored."""
_CHECK: Final = 300.0
"""Seconds for the check of a backup that was received."""
_LARGEST: Final = 1024 * 1024
"""Bytes of the findings."""


class AdministrationTools:
    """The commands, one of a kind at a time."""

    def __init__(self, data_dir: Path) -> None:
        """`data_dir`: of the gateway."""
        self._data_dir = data_dir
        self._running: set[str] = set()

    async def examine(self, token: str, *, fix: bool) -> object:
        """Return the findings of `edge doctor` as JSON. `token`: of the client that asks; empty without security.

        `fix`: carry out remedies that are safe. Raises `TooManyRequests`, `RequestTimeout`, `EdgeError`.
        """
        async with self._command(["doctor", "--json", *(["--fix"] if fix else [])], token) as process:
            try:
                async with asyncio.timeout(_EXAMINATION):
                    output, errors = await process.communicate()
            except TimeoutError:
                raise RequestTimeout(f"The checks took longer than {_EXAMINATION:g} s; run `edge doctor`") from None
        try:
            return json.loads(output[:_LARGEST])
        except ValueError:
            raise _failed("doctor", errors) from None

    async def backup(self) -> AsyncGenerator[bytes, None]:
        """Yield a backup of the data directory (.tar.gz).

        Raises `TooManyRequests`, or `EdgeError`: before the first bytes if it fails, and later if it is incomplete.
        """
        async with self._command(["backup", "-"]) as process:
            assert process.stdout is not None, "a pipe"  # noqa: S101
            assert process.stderr is not None, "a pipe"  # noqa: S101
            errors = asyncio.create_task(process.stderr.read(_LARGEST))
            try:
                while True:
                    async with asyncio.timeout(_SILENCE):
                        chunk = await process.stdout.read(_CHUNK)
                    if not chunk:
                        break
                    yield chunk
                if await process.wait():
                    raise _failed("backup", await errors)
            except TimeoutError:
                raise RequestTimeout(f"The backup stood still for {_SILENCE:g} s; run `edge backup`") from None
            finally:
                errors.cancel()

    async def restore(self, archive: AsyncGenerator[bytes, None], *, keep_clients: bool, caller: str) -> object:
        """Check a backup and stage it for the next start. Return what was staged: `made`, `bytes` and `version`.

        `keep_clients`: the clients and certificates stay those of the gateway. Otherwise `caller` (empty without
        security) must be a client of the backup. Raises `TooManyRequests`, `RequestTimeout`, and `InvalidRequest` with
        the reason if the backup is refused.
        """
        arguments = ["restore", "-", "--stage", "--json"]
        arguments += ["--keep-clients"] if keep_clients else ["--require-client", caller] if caller else []
        async with self._command(arguments, takes_input=True) as process:
            outcome = asyncio.create_task(_outcome(process))
            try:
                async with asyncio.timeout(_UPLOAD):
                    await _feed(process, archive)
            except TimeoutError:
                raise RequestTimeout(
                    f"The backup stood still for {_SILENCE:g} s, or took longer than {_UPLOAD:g} s; run `edge restore`"
                ) from None
            finally:
                await _end_input(process, outcome)
            if not outcome.done():
                raise RequestTimeout(f"The check of the backup took longer than {_CHECK:g} s; run `edge restore`")
            output, errors = outcome.result()
        if process.returncode:
            raise InvalidRequest(_reason(errors))
        return json.loads(output)

    @contextlib.asynccontextmanager
    async def _command(
        self, arguments: Sequence[str], token: str = "", *, takes_input: bool = False
    ) -> AsyncIterator[Process]:
        """Run `edge` with these arguments; it has ended at the end of the context. Raises `TooManyRequests`."""
        name = arguments[0]
        # Others do not wait: a queue could fill with requests whose clients have long gone.
        if name in self._running:
            reason = f"`edge {name}` is running for another request; try again when it has ended"
            raise TooManyRequests(reason, retry_after=10)
        self._running.add(name)
        try:
            with tempfile.TemporaryDirectory(prefix=f"edge-{name}-", ignore_cleanup_errors=True) as directory:
                process = await self._start(
                    PIPE if takes_input else DEVNULL,
                    arguments,
                    {"TMPDIR": directory, **({"EDGE_TOKEN": token} if token else {})},
                )
                try:
                    yield process
                finally:
                    await _end(process)
        finally:
            self._running.discard(name)

    async def _start(self, stdin: int, arguments: Sequence[str], variables: Mapping[str, str]) -> Process:
        nice = [path, "-n", "10"] if (path := shutil.which("nice")) else []
        where = ["--data-dir", str(self._data_dir.absolute())]
        return await asyncio.create_subprocess_exec(
            *nice,
            sys.executable,
            "-m",
            "edge",
            *arguments,
            *where,
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, **variables},
        )


async def _feed(process: Process, archive: AsyncGenerator[bytes, None]) -> None:
    """Write to the standard input of a process, as long as it reads. Raises `TimeoutError`."""
    assert process.stdin is not None, "a pipe"  # noqa: S101
    async with contextlib.aclosing(archive):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it was refused, and does not read the rest
            while True:
                async with asyncio.timeout(_SILENCE):
                    chunk = await anext(archive, None)
                    if chunk is None:
                        return
                    process.stdin.write(chunk)
                    await process.stdin.drain()


async def _end_input(process: Process, outcome: asyncio.Task[tuple[bytes, bytes]]) -> None:
    """Close the standard input of a process. If it lacks something, the process cleans up and ends by itself."""
    assert process.stdin is not None, "a pipe"  # noqa: S101
    process.stdin.close()
    await asyncio.wait([outcome], timeout=_CHECK)


async def _end(process: Process) -> None:
    """End a process that may still run. It has no work that must be completed, and its files are in our directory."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())


def _failed(command: str, errors: bytes) -> EdgeError:
    reason = _reason(errors)
    _log.error("tool.failed", extra={"command": command, "reason": reason})
    return EdgeError(f"`edge {command}` failed: {reason}")


def _reason(errors: bytes) -> str:
    text = errors.decode(errors="replace").strip()
    if text and not text.startswith(_SAYS):
        _log.error("tool.crashed", extra={"output": text[-4000:]})
        return "it ended with an internal error, which the log has"
    return text.removeprefix(_SAYS)[:2000] or "it said nothing"


async def _outcome(process: Process) -> tuple[bytes, bytes]:
    """Return the output and the errors of a process when it has ended."""
    assert process.stdout is not None, "a pipe"  # noqa: S101
    assert process.stderr is not None, "a pipe"  # noqa: S101
    output, errors = await asyncio.gather(process.stdout.read(_LARGEST), process.stderr.read(_LARGEST))
    await process.wait()
    return output, errors
