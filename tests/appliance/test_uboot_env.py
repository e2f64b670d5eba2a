"""The environment of U-Boot on the boot partition of a Raspberry Pi's card."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "images" / "lib" / "uboot-env"


def test_they_are_those_built_in_but_u_boot_waits_for_no_key(tmp_path):
    binary, env = tmp_path / "u-boot.bin", tmp_path / "uboot.env"
    binary.write_bytes(b"code\0bootcmd=bootflow scan\0bootdelay=2\0boot_targets=mmc usb\0\0more code\0a=b\0\0")
    subprocess.run([sys.executable, SCRIPT, binary, env], check=True)
    written = env.read_bytes()
    assert len(written) == 0x4000
    assert int.from_bytes(written[:4], "little") == zlib.crc32(written[4:])
    words, _, rest = written[4:].partition(b"\0\0")
    assert words.split(b"\0") == [b"bootcmd=bootflow scan", b"bootdelay=-2", b"boot_targets=mmc usb"]
    assert not rest.strip(b"\xff")
