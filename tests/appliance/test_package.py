"""The Debian package: built as a user builds it, unpacked, and checked."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
"""Compiled with the Python of the system."""
FAST = ["--level", "1"]
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """Build the package for this machine and this Python, so that its programs can run."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb here; install the package dpkg")
    suite, machine = SUITES.get(sys.version_info[:2], "trixie"), MACHINES[os.uname().machine]
    out = tmp_path_factory.mktemp("package")
    command = [ROOT / "images" / "package", "--arch", machine, "--suite", suite, "--out", out, *FAST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    subprocess.run(["dpkg-deb", "--control", package, root / "DEBIAN"], check=True)
    return root


pytestmark = pytest.mark.timeout(600)


def test_the_command_runs_with_the_packaged_libraries_only(unpacked):
    if sys.version_info[:2] not in SUITES:
        pytest.skip("packages are for Python 3.11 and 3.13, and this is another; install the package python3.13")
    launcher = (unpacked / "usr" / "bin" / "edge").read_text()
    assert launcher.startswith("#!/usr/bin/python3 -I\n")
    code = [
        "import sys",
        "sys.path[:] = [path for path in sys.path if 'site-packages' not in path]",  # of this environment
        "sys.argv = ['edge', '--version']",
        launcher.replace("/usr/lib/sepa-edge", str(unpacked / "usr" / "lib" / "sepa-edge")),
    ]
    command = [sys.executable, "-I", "-B", "-c", "\n".join(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith("edge ")


def test_units_settings_and_words_are_where_debian_has_them(unpacked):
    system = unpacked / "usr" / "lib" / "systemd" / "system"
    units = {path.name for path in system.iterdir()}
    assert units >= {"edge.service", "edge-health.service", "edge-offload.service", "edge-offload.timer"}
    assert (unpacked / "usr" / "share" / "doc" / "sepa-edge" / "docs" / "install.md").exists()
    assert (unpacked / "DEBIAN" / "conffiles").read_text() == "/etc/sepa-edge/edge.toml\n"
    secrets = unpacked / "etc" / "sepa-edge" / "secrets"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert list(secrets.iterdir()) == []
    settings = ["config", "check", "--config", str(unpacked / "etc" / "sepa-edge" / "edge.toml")]
    checked = subprocess.run([sys.executable, "-m", "edge", *settings], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_package_contains_no_path_of_the_build_machine(unpacked):
    for path in unpacked.rglob("*"):
        assert path.name != "__pycache__"
        assert path.is_symlink() or path.is_dir() or str(ROOT) not in path.read_bytes().decode("latin-1"), path


def test_two_runs_on_the_same_sources_make_the_same_file(package, tmp_path):
    architecture = package.stem.rpartition("_")[2]
    suite = {"12": "bookworm", "13": "trixie"}[package.stem.partition("+deb")[2][:2]]
    command = [ROOT / "images" / "package", "--arch", architecture, "--suite", suite, "--out", tmp_path, *FAST]
    subprocess.run(command, capture_output=True, timeout=500, check=True)
    assert (tmp_path / package.name).read_bytes() == package.read_bytes()
