"""Write the settings of a U-Boot: python3 -m images.uboot_env U-BOOT.BIN UBOOT.ENV

They are the built-in settings, except that U-Boot does not wait for a key. Data of a sensor at the serial pins, or
noise at unconnected pins, would count as a key, and the box would not start.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

SIZE = 0x4000
"""CONFIG_ENV_SIZE of Debian's builds for the Raspberry Pi."""


def settings(binary: bytes) -> dict[str, str]:
    """Return the built-in settings: strings "name=value", each ended by a zero byte, the last one by two."""
    begin = binary.index(b"\0bootcmd=") + 1
    words = binary[begin : binary.index(b"\0\0", begin)].decode("ascii").split("\0")
    return dict(word.split("=", 1) for word in words)


def environment(settings: dict[str, str]) -> bytes:
    """Return the content of the file: a CRC-32, and the settings in the built-in format."""
    words = b"".join(f"{name}={value}\0".encode("ascii") for name, value in settings.items())
    content = (words + b"\0").ljust(SIZE - 4, b"\xff")
    if len(content) != SIZE - 4:
        raise ValueError("the settings of U-Boot exceed the size of its environment")
    return zlib.crc32(content).to_bytes(4, "little") + content


if __name__ == "__main__":
    binary, env = map(Path, sys.argv[1:])
    env.write_bytes(environment(settings(binary.read_bytes()) | {"bootdelay": "-2"}))
