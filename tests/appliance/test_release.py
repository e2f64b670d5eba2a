"""A release: an empty environment installs its wheel, apt its repository, and its signatures are good."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge import __version__
from images import oci_layout, sbom

ROOT = Path(__file__).parents[2]
CONTROL = """Package: sepa-edge
Version: {version}
Architecture: amd64
Maintainer: The sepa-edge authors <nobody@example.org>
Description: a package without files
"""
NEEDED = {"dpkg-deb": "dpkg", "dpkg-scanpackages": "dpkg-dev", "gpg": "gnupg", "apt-get": "apt"}


def run(*command: object, **more: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Make a home directory of GnuPG with a key."""
    for command, package in NEEDED.items():
        if shutil.which(command) is None:
            pytest.skip(f"no {command} here; install the package {package}")
    home = tmp_path_factory.mktemp("gnupg")
    home.chmod(0o700)
    key = ("--batch", "--passphrase", "", "--quick-generate-key", "release@example.org", "ed25519", "sign", "never")
    run("gpg", *key, env={**os.environ, "GNUPGHOME": str(home)})
    yield home
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> list[Path]:
    """Make two packages without files: `test_package` makes real ones."""
    found = []
    for version in ("0.1.0+deb12", "0.1.0+deb13"):
        root = tmp_path_factory.mktemp("package")
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN" / "control").write_text(CONTROL.format(version=version))
        found.append(root.parent / f"sepa-edge_{version}_amd64.deb")
        run("dpkg-deb", "--root-owner-group", "--build", root, found[-1])
    return found


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Path:
    """Make an image without the gateway: CI builds and runs a real one."""
    root = tmp_path_factory.mktemp("image")
    (root / "root").mkdir()
    file = root / "sepa-edge_0.1.0+deb13_amd64.oci.tar"
    oci_layout.write(root / "root", "amd64", "sepa-edge:0.1.0", file, 0)
    sbom.write(root / "sepa-edge_0.1.0+deb13_amd64.oci", [])
    return file


@pytest.fixture(scope="module")
def releases(home, packages, image, tmp_path_factory) -> list[Path]:
    """Make the release twice."""
    outs = [tmp_path_factory.mktemp("releases") / "release" for _ in range(2)]
    given = [each for package in packages for each in ("--package", package)]
    given += ["--image", image]
    for out in outs:
        command = (sys.executable, "-m", "images.release", "--out", out, "--key", "release@example.org", *given)
        assert run(*command, cwd=ROOT, env={**os.environ, "GNUPGHOME": str(home)}) == f"{out}\n"
    return outs


def files(release: Path) -> set[str]:
    return {str(path.relative_to(release)) for path in release.rglob("*") if path.is_file()}


def test_the_same_sources_give_the_same_release(releases):
    one, other = releases
    signatures = {"SHA256SUMS", "SHA256SUMS.asc"} | {
        name for name in files(one) if name.endswith(("InRelease", ".gpg"))
    }
    assert files(one) == files(other)
    for name in files(one) - signatures:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_checksums_and_their_signature_are_good(releases, tmp_path):
    release = releases[0]
    sums = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == files(release) - {"SHA256SUMS", "SHA256SUMS.asc"}
    for name, digest in sums.items():
        assert hashlib.sha256((release / name).read_bytes()).hexdigest() == digest
    # With the published key only.
    run("gpgv", "--keyring", release / "sepa-edge.gpg", release / "SHA256SUMS.asc", release / "SHA256SUMS")


def test_apt_finds_the_package_of_its_suite(releases, tmp_path):
    release = releases[0]
    signed = f"deb [arch=amd64 signed-by={release / 'sepa-edge.gpg'}] file:{release / 'apt'}"
    options: list[object] = []
    for name, content in {"sources.list": f"{signed} trixie main\n", "status": ""}.items():
        (tmp_path / name).write_text(content)
    for name in ("lists/partial", "cache/archives/partial", "parts", "preferences", "trusted"):
        (tmp_path / name).mkdir(parents=True)
    directories = {
        "Dir::Etc::SourceList": "sources.list",
        "Dir::Etc::SourceParts": "parts",
        "Dir::Etc::PreferencesParts": "preferences",
        "Dir::Etc::TrustedParts": "trusted",
        "Dir::State::Lists": "lists",
        "Dir::State::Status": "status",
        "Dir::Cache": "cache",
    }
    options += [f"-o{name}={tmp_path / path}" for name, path in directories.items()]
    options += [f"-oAPT::Sandbox::User={os.environ.get('USER', 'root')}", "-oAPT::Architecture=amd64"]
    printed = run("apt-get", *options, "update", "--error-on=any")
    assert "InRelease" in printed
    assert "W:" not in printed
    assert "sepa-edge_0.1.0%2bdeb13" in run("apt-get", *options, "download", "--print-uris", "sepa-edge", cwd=tmp_path)


def test_the_wheel_has_both_commands_and_the_web_application(releases, tmp_path):
    wheel = releases[0] / f"sepa_edge-{__version__}-py3-none-any.whl"
    assert {path.name for path in releases[0].glob("*.whl")} == {
        wheel.name,
        f"sepa_edge_client-{__version__}-py3-none-any.whl",
    }
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--target", tmp_path / "installed", wheel)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    where = "import edge, pathlib; print(pathlib.Path(edge.__file__).parent)"
    assert run(sys.executable, "-c", where, cwd=tmp_path, env=environment).strip() == str(
        tmp_path / "installed" / "edge"
    )
    for command in ("edge", "edge-history"):
        printed = run(tmp_path / "installed" / "bin" / command, "--version", cwd=tmp_path, env=environment)
        assert __version__ in printed
    assert (tmp_path / "installed" / "edge" / "web" / "vendor" / "manifest.json").exists()


def test_bills_of_materials_name_the_pinned_dependencies(releases):
    pinned = {
        line.split(" ")[0].rstrip("\\")
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if "==" in line and ";" not in line
    }
    name = f"sepa_edge-{__version__}"
    bill = json.loads((releases[0] / f"{name}.cdx.json").read_text())
    components = {f"{each['name']}=={each['version']}" for each in bill["components"]}
    assert pinned <= components
    assert any(each["purl"].startswith("pkg:npm/preact@") for each in bill["components"])
    spdx = json.loads((releases[0] / f"{name}.spdx.json").read_text())
    assert {f"{each['name']}=={each['versionInfo']}" for each in spdx["packages"]} == components
    assert len({each["SPDXID"] for each in spdx["packages"]}) == len(spdx["packages"])


def test_the_client_has_a_bill_of_its_own(releases):
    bill = json.loads((releases[0] / f"sepa_edge_client-{__version__}.cdx.json").read_text())
    names = {each["name"] for each in bill["components"]}
    assert {"httpx", "pyoxigraph", "pyyaml", "websockets", "h11"} <= names
    assert names.isdisjoint({"uvicorn", "pydantic", "cryptography"})


def test_the_image_is_there_with_its_bills_and_the_folders_that_use_it(releases):
    name = "sepa-edge_0.1.0+deb13_amd64.oci"
    found = files(releases[0])
    assert {f"{name}.tar", f"{name}.cdx.json", f"{name}.spdx.json", "compose/compose.yaml"} <= found
    assert {"home-assistant/sepa-edge/config.yaml", "kubernetes/kustomization.yaml"} <= found
    assert not [each for each in found if "__pycache__" in each]


def test_an_existing_directory_is_refused(tmp_path):
    command = [sys.executable, "-m", "images.release", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "exists; name a new directory" in done.stderr
