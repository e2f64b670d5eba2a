"""The file system of a slot, and the signed update that carries it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "images"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
NEEDED = {"mke2fs": "e2fsprogs", "fakeroot": "fakeroot", "rauc": "rauc", "mksquashfs": "squashfs-tools"}

missing = [package for program, package in NEEDED.items() if shutil.which(program, path=PATH) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"install the packages {', '.join(missing)}")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed."""
    command = [str(word) for word in words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=True, env={**os.environ, "PATH": PATH}
    )


@pytest.fixture(scope="module")
def system(tmp_path_factory) -> Path:
    """Return a system of one program, one link and many small files, as a tar file."""
    directory = tmp_path_factory.mktemp("system")
    root = directory / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/edge").write_text("#!/bin/sh\n")
    (root / "bin").symlink_to("usr/bin")
    for number in range(300):
        (root / f"usr/{number}").write_text("x" * number * 20)
    with tarfile.open(directory / "root.tar", "w") as archive:
        archive.add(root, ".")
    return directory / "root.tar"


@pytest.fixture(scope="module")
def slot(system, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("slot") / "slot.ext4"
    run(IMAGES / "slot", "--root", system, "--out", out)
    return out


def test_an_update_bundle_contains_the_system_with_little_overhead(slot):
    run("e2fsck", "-fn", slot)
    assert run("debugfs", "-R", "cat /usr/299", slot).stdout == "x" * 5980
    assert "Fast link dest" in run("debugfs", "-R", "stat /bin", slot).stdout
    assert slot.stat().st_size <= 24 << 20


def test_two_runs_make_the_same_file(system, slot, tmp_path):
    run(IMAGES / "slot", "--root", system, "--out", tmp_path / "again.ext4")
    assert (tmp_path / "again.ext4").read_bytes() == slot.read_bytes()


def test_an_update_is_accepted_only_with_a_signature_of_the_key(slot, tmp_path):
    for name in ("ours", "theirs"):
        run(IMAGES / "keys", "--out", tmp_path / name)
    assert (tmp_path / "ours" / "key.pem").stat().st_mode & 0o077 == 0
    bundle = tmp_path / "update.raucb"
    keys = ["--keys", tmp_path / "ours"]
    run(IMAGES / "bundle", "--board", "amd64", "--slot", slot, *keys, "--version", "7.0", "--out", bundle)
    reported = run("rauc", "info", "--keyring", tmp_path / "ours/authority.pem", bundle).stdout
    assert "sepa-edge-amd64" in reported
    assert "7.0" in reported
    with pytest.raises(subprocess.CalledProcessError):
        run("rauc", "info", "--keyring", tmp_path / "theirs/authority.pem", bundle)


def test_keys_are_never_overwritten(tmp_path):
    run(IMAGES / "keys", "--out", tmp_path)
    before = (tmp_path / "key.pem").read_bytes()
    with pytest.raises(subprocess.CalledProcessError):
        run(IMAGES / "keys", "--out", tmp_path)
    assert (tmp_path / "key.pem").read_bytes() == before
