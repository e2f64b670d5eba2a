"""The environment of U-Boot on the boot partition of a Raspberry Pi's card."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_u_boot_variables_are_the_defaults_without_a_boot_delay(tmp_path):
    binary, env = tmp_path / "u-boot.bin", tmp_path / "uboot.env"
    binary.write_bytes(b"code\0bootcmd=bootflow scan\0bootdelay=2\0boot_targets=mmc usb\0\0more code\0a=b\0\0")
    subprocess.run([sys.executable, "-m", "images.uboot_env", binary, env], cwd=ROOT, check=True)
    written = env.read_bytes()
    assert len(written) == 0x4000
    assert int.from_bytes(written[:4], "little") == zlib.crc32(written[4:])
    words, _, rest = written[4:].partition(b"\0\0")
    assert words.split(b"\0") == [b"bootcmd=bootflow scan", b"bootdelay=-2", b"boot_targets=mmc usb"]
    assert not rest.strip(b"\xff")
