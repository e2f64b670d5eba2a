"""Write an apt repository: packages, their index for each suite and architecture, and the signed description.

The layout is that of Debian (wiki.debian.org/DebianRepository/Format), with one component, `main`.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Final

SUITES: Final = {"deb12": "bookworm", "deb13": "trixie"}
"""Suite by the end of a package's version."""


def write(root: Path, packages: Sequence[Path], epoch: int, key: str | None) -> None:
    """Write a repository with these packages into a new directory.

    `epoch`: time of the description, in seconds since 1970. `key`: GnuPG key that signs it; None: it is not signed.
    """
    suites: defaultdict[str, set[str]] = defaultdict(set)
    for package in packages:
        _, version, architecture = package.stem.split("_")
        suite = SUITES.get(version.rpartition("+")[2])
        if suite is None:
            raise SystemExit(
                f"{package} is not a package of images/package: its version ends with {' or '.join(SUITES)}"
            )
        suites[suite].add(architecture)
        pool = root / "pool" / suite
        pool.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package, pool / package.name)
    for suite, architectures in sorted(suites.items()):
        for architecture in sorted(architectures):
            _index(root, suite, architecture)
        _describe(root / "dists" / suite, sorted(architectures), epoch, key)


def _index(root: Path, suite: str, architecture: str) -> None:
    """Write the index of the packages of an architecture."""
    command = ["dpkg-scanpackages", "--multiversion", "--arch", architecture, f"pool/{suite}"]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True)
    directory = root / "dists" / suite / "main" / f"binary-{architecture}"
    directory.mkdir(parents=True)
    (directory / "Packages").write_bytes(done.stdout)
    (directory / "Packages.gz").write_bytes(gzip.compress(done.stdout, mtime=0))


def _describe(suite: Path, architectures: Sequence[str], epoch: int, key: str | None) -> None:
    """Write the description of a suite, which has the digests of its indexes."""
    lines = [
        "Origin: sepa-edge",
        "Label: sepa-edge",
        f"Suite: {suite.name}",
        f"Codename: {suite.name}",
        f"Date: {formatdate(epoch, usegmt=True)}",
        f"Architectures: {' '.join(architectures)}",
        "Components: main",
        "SHA256:",
    ]
    for file in sorted(path for path in suite.rglob("*") if path.is_file()):
        content = file.read_bytes()
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {file.relative_to(suite)}")
    (suite / "Release").write_text("\n".join(lines) + "\n")
    if key is not None:
        gpg = ["gpg", "--batch", "--yes", "--local-user", key, "--output"]
        subprocess.run([*gpg, suite / "InRelease", "--clearsign", suite / "Release"], check=True)
        subprocess.run([*gpg, suite / "Release.gpg", "--armor", "--detach-sign", suite / "Release"], check=True)
