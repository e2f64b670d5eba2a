"""The partition tables of images: requirements of the boards, and the partitions that the first start adds."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "images"
RULES = IMAGES / "system" / "etc" / "udev" / "rules.d" / "61-edge-partitions.rules"
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
MEBIBYTE = 1 << 20
CARD = 4 << 30

pytestmark = pytest.mark.skipif(
    shutil.which("sfdisk", path=PATH) is None, reason="no sfdisk here; install the package fdisk"
)


@pytest.fixture(params=["amd64", "pi"])
def board(request) -> str:
    return request.param


@pytest.fixture
def disk(board, tmp_path) -> Path:
    """Write the partition table of an image to a larger card."""
    file = tmp_path / "disk.img"
    subprocess.run([IMAGES / "lib" / "partitions", board, file, "256"], check=True)
    os.truncate(file, CARD)
    return file


def sfdisk(*arguments: str | Path, script: str | None = None) -> str:
    command = ["sfdisk", *map(str, arguments)]
    return subprocess.run(
        command, check=True, input=script, text=True, stdout=subprocess.PIPE, env=os.environ | {"PATH": PATH}
    ).stdout


def entries(disk: Path) -> list[tuple[int, int]]:
    """Return the start and length of each partition, in MiB."""
    table = json.loads(sfdisk("--json", disk))["partitiontable"]
    return [(part["start"] * 512 // MEBIBYTE, part["size"] * 512 // MEBIBYTE) for part in table["partitions"]]


def test_all_boards_have_the_same_layout(disk):
    assert entries(disk) == [(4, 256), (260, 1024), (1284, 1024)]


def test_the_data_partition_is_appended_as_the_first_start_does_it(disk):
    before = entries(disk)
    script = (IMAGES / "system/etc/initramfs-tools/scripts/local-bottom/edge-data").read_text()
    line = re.search(r'echo "(start=\$start, size=\$sectors, [^"]*)"', script)
    assert line is not None
    subprocess.run(
        ["sfdisk", "--quiet", "--relocate", "gpt-bak-std", disk], check=False, capture_output=True, env={"PATH": PATH}
    )
    behind = re.search(r"start=\$\(\(\$\{last% \*\} \+ \$\{last#\* \} \+ (\d+)\)\)", script)
    assert behind is not None
    start = 2308 * 2048 + int(behind[1])
    sectors = CARD // 512 - start - 2048
    entry = line[1].replace("$start", str(start)).replace("$sectors", str(sectors))
    sfdisk("--quiet", "--force", "--no-reread", "--no-tell-kernel", "--append", disk, script=entry)
    assert entries(disk) == [*before, (2312, CARD // MEBIBYTE - 2312 - 1)]
    kind = sfdisk("--part-type", disk, "4").strip()
    assert any(fnmatch(kind, swap) for swap in re.findall(r"^  (.*)\) make ;;", script, re.MULTILINE)[0].split(" | "))
    sfdisk("--quiet", "--force", "--no-reread", "--no-tell-kernel", "--part-type", disk, "4", "L")
    assert sfdisk("--part-type", disk, "4").strip() in ("83", "0FC63DAF-8483-4772-8E79-3D69D8477DE4")
    assert len(entries(disk)) == 4


def test_an_image_that_is_flashed_again_ends_where_data_begins(board, tmp_path):
    image = tmp_path / "image"
    subprocess.run([IMAGES / "lib" / "partitions", board, image, "256"], check=True)
    assert image.stat().st_size == 2312 * MEBIBYTE  # at the start that the test above has checked


@pytest.mark.parametrize("board", ["pi"])
def test_a_raspberry_pi_finds_an_mbr_whose_first_entry_is_fat_and_active(disk):
    with disk.open("rb") as file:
        sector = file.read(512)
    assert sector[510:] == b"\x55\xaa"
    status, kind, begin = struct.unpack_from("<B3xB3xI", sector, 446)
    assert (status, kind, begin) == (0x80, 0x0C, 4 * MEBIBYTE // 512)
    kinds = [sector[446 + 16 * number + 4] for number in range(4)]
    assert 0xEE not in kinds  # firmware would use a GPT next to it


@pytest.mark.parametrize("board", ["pi"])
def test_partitions_have_stable_names(disk):
    table = json.loads(sfdisk("--json", disk))["partitiontable"]
    signature = table["id"].removeprefix("0x")
    names = re.findall(
        r'ENV\{ID_PART_ENTRY_UUID\}=="(.*)-0(\d)", SYMLINK\+="disk/by-partlabel/(.*)"', RULES.read_text()
    )
    assert names == [(signature, str(n), name) for n, name in enumerate(("boot", "system-a", "system-b", "data"), 1)]
