"""Make a release: everything that users download, with bills of materials, checksums and a signature.

    python3 -m images.release --out DIR [--key KEY] [--arch ARCH]... [--suite SUITE]... [--package FILE]...
        [--image FILE]...

Writes into DIR, which must not exist: a wheel and a source distribution, a wheel of the client library alone, the
Debian packages as an apt repository, OCI images with a Compose file and a Home Assistant add-on, a bill of materials
for each (CycloneDX, SPDX), and SHA256SUMS. With a GnuPG key, SHA256SUMS and the repository are signed, and the public
key is next to them. Two runs on the same sources give the same files, except for the signatures.

`--package` takes a Debian package that was made before (`images/package`), and `--image` an OCI image (`images/oci`),
instead of making those of all architectures and suites.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from packaging.requirements import Requirement

from edge import __version__
from images import apt_repository, client_package, sbom

ROOT: Final = Path(__file__).parents[1]
ARCHITECTURES: Final = ("amd64", "arm64")
FOLDERS: Final = ("compose", "home-assistant", "kubernetes")
"""Folders of images/ that are part of a release as they are."""
_PINNED: Final = re.compile(r"^([A-Za-z0-9][^\s\\]*==[^\\\n]*)", re.MULTILINE)
"""A pinned dependency of a lock file, with its marker."""


def main() -> None:
    """Make a release."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python3 -m images.release"
    )
    options.add_argument("--out", type=Path, required=True, metavar="DIR")
    options.add_argument("--key", metavar="KEY", help="GnuPG key that signs")
    options.add_argument("--arch", action="append", choices=ARCHITECTURES, help="(default: all)")
    options.add_argument("--suite", action="append", choices=apt_repository.SUITES.values(), help="(default: all)")
    options.add_argument("--package", action="append", type=Path, metavar="FILE")
    options.add_argument("--image", action="append", type=Path, metavar="FILE", help="an OCI image")
    given = options.parse_args()
    if given.out.exists():
        options.error(f"{given.out} exists; name a new directory")
    if (
        given.key
        and subprocess.run(["gpg", "--list-secret-keys", given.key], capture_output=True, check=False).returncode
    ):
        options.error(f"there is no secret key {given.key} here (gpg --list-secret-keys)")
    if not given.key:
        print("not signed: --key names the GnuPG key of the release", file=sys.stderr)
    # Fixed times and permissions: the same sources give the same files.
    epoch = os.environ.setdefault("SOURCE_DATE_EPOCH", _last_change())
    os.umask(0o022)
    given.out.mkdir(parents=True)
    _python_packages(given.out)
    _client(given.out)
    with TemporaryDirectory(prefix="release-") as directory:
        packages = given.package or [
            _debian_package(Path(directory), architecture, suite)
            for suite in given.suite or apt_repository.SUITES.values()
            for architecture in given.arch or ARCHITECTURES
        ]
        apt_repository.write(given.out / "apt", packages, int(epoch), given.key)
        for package in packages:
            _bill_of_package(package, Path(directory), given.out)
        images = given.image or ([] if given.package else _images(Path(directory), packages))
        for image in images:  # with its bills of materials
            for file in (image, image.with_suffix(".cdx.json"), image.with_suffix(".spdx.json")):
                shutil.copyfile(file, given.out / file.name)
    for name in FOLDERS:
        shutil.copytree(ROOT / "images" / name, given.out / name, ignore=shutil.ignore_patterns("__pycache__"))
    _sign(given.out, given.key)
    print(given.out)


def _last_change() -> str:
    """Return the time of the last commit, in seconds since 1970."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _python_packages(out: Path) -> None:
    """Make the wheel and the source distribution, and the bill of materials of their dependencies."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(out.absolute())]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    manifest = (ROOT / "edge" / "web" / "vendor" / "manifest.json").read_bytes()
    javascript = {component["purl"]: component for component in sbom.vendored(manifest)}
    sbom.write(out / f"sepa_edge-{__version__}", [*_locked(), *javascript.values()])


def _client(out: Path) -> None:
    """Make the wheel of the client library, and the bill of materials of its dependencies."""
    wheel = client_package.build(out)
    names = client_package.requirements()
    sbom.write(
        out / wheel.name.removesuffix("-py3-none-any.whl"), [each for each in _locked() if each["name"] in names]
    )


def _locked() -> list[sbom.Component]:
    """Return the dependencies of the lock file."""
    components: list[sbom.Component] = []
    for text in _PINNED.findall((ROOT / "requirements.txt").read_text()):
        pinned = Requirement(text)
        if pinned.marker is None or pinned.marker.evaluate({"platform_system": "Linux", "sys_platform": "linux"}):
            version = str(pinned.specifier).removeprefix("==")
            purl = f"pkg:pypi/{pinned.name.lower()}@{version}"
            entry = {"type": "library", "bom-ref": purl, "name": pinned.name, "version": version, "purl": purl}
            components.append(entry)
    return components


def _debian_package(directory: Path, architecture: str, suite: str) -> Path:
    command = [str(ROOT / "images" / "package"), "--arch", architecture, "--suite", suite, "--out", str(directory)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.splitlines()[-1])


def _images(directory: Path, packages: Sequence[Path]) -> list[Path]:
    """Make OCI images with the packages for Debian 13."""
    found = []
    for package in packages:
        _, version, architecture = package.stem.split("_")
        if version.endswith("+deb13"):
            command = [str(ROOT / "images" / "oci"), "--arch", architecture]
            command += ["--package", str(package), "--out", str(directory)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found.append(Path(done.stdout.splitlines()[-1]))
    return found


def _bill_of_package(package: Path, directory: Path, out: Path) -> None:
    """Write the bill of materials of a Debian package, from its files."""
    content = directory / "content.tar"
    with content.open("wb") as file:
        subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=file)
    sbom.write(out / package.stem, sbom.python(content) + sbom.javascript(content))


def _sign(out: Path, key: str | None) -> None:
    """Write and sign the checksums of all files."""
    if key is not None:
        _gpg("--output", str(out / "sepa-edge.gpg"), "--export", key)
    files = sorted(path for path in out.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines))
    if key is not None:
        signed = ("--armor", "--detach-sign", str(out / "SHA256SUMS"))
        _gpg("--local-user", key, "--output", str(out / "SHA256SUMS.asc"), *signed)


def _gpg(*arguments: str) -> None:
    subprocess.run(["gpg", "--batch", *arguments], check=True)


def _missing(commands: Sequence[str]) -> list[str]:
    return [command for command in commands if shutil.which(command) is None]


if __name__ == "__main__":
    if missing := _missing(["dpkg-deb", "dpkg-scanpackages", "gpg"]):
        sys.exit(f"needs {', '.join(missing)}: install the packages dpkg-dev and gnupg")
    main()
