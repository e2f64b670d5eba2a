"""Output of a command: standard output, or a file that is replaced when the whole output is written."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from spark_offload.errors import OutputRefused


@contextmanager
def output(out: str | None) -> Iterator[IO[bytes]]:
    """Open the output: a file, or standard output. A file stays as it is if there is an error.

    Raises `OutputRefused`.
    """
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(out).resolve()
    # Devices and pipes cannot be replaced.
    part = path if path.exists() and not path.is_file() else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            yield file
        if part != path:
            if path.exists():
                shutil.copymode(path, part)
            part.replace(path)
    except OSError as error:
        raise OutputRefused(f"{out} cannot be written: {error.strerror}") from error
    finally:
        if part != path:
            with suppress(OSError):
                part.unlink()
