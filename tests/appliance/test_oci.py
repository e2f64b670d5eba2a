"""The OCI image: its archive from any directory, its Compose file, and that readers of such archives accept it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from edge import __version__
from images import oci_layout

IMAGES = Path(__file__).parents[2] / "images"
COMPOSE = yaml.safe_load((IMAGES / "compose" / "compose.yaml").read_text())
EPOCH = 1_700_000_000


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "root"
    for directory in ("tmp", "usr/bin", oci_layout.DATA):
        (root / directory).mkdir(parents=True)
    command = root / "usr/bin/edge"
    command.write_text("#!/usr/bin/python3 -I\n")
    command.chmod(0o4775)
    (root / "secret").write_text("text")
    (root / "secret").chmod(0o666)
    (root / "same").hardlink_to(root / "secret")
    (root / "bin").symlink_to("usr/bin")
    return root


def archive(root: Path, out: Path) -> dict[str, bytes]:
    oci_layout.write(root, "arm64", "sepa-edge:1.2", out, EPOCH)
    with tarfile.open(out) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}


def blob(files: dict[str, bytes], descriptor: dict[str, object]) -> bytes:
    content = files["blobs/" + str(descriptor["digest"]).replace(":", "/")]
    assert descriptor["size"] == len(content)
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    return content


def test_all_digests_and_sizes_are_right(root, tmp_path):
    files = archive(root, tmp_path / "image.tar")
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["platform"] == {"architecture": "arm64", "os": "linux"}
    manifest = json.loads(blob(files, entry))
    image = json.loads(blob(files, manifest["config"]))
    (layer,) = (gzip.decompress(blob(files, each)) for each in manifest["layers"])
    assert image["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    (docker,) = json.loads(files["manifest.json"])
    assert files[docker["Config"]] == blob(files, manifest["config"])
    assert set(files) == {"index.json", "manifest.json", "oci-layout", docker["Config"], *docker["Layers"]} | {
        "blobs/" + entry["digest"].replace(":", "/")
    }


def test_only_the_gateway_owns_its_data_and_nothing_gives_privileges(root):
    with tarfile.open(fileobj=io.BytesIO(oci_layout.layer(root, EPOCH))) as tar:
        members = {member.name: member for member in tar.getmembers()}
    assert {name for name, member in members.items() if member.uid or member.gid} == {oci_layout.DATA}
    modes = {name: oct(members[name].mode) for name in (oci_layout.DATA, "tmp", "usr/bin/edge", "secret", "same")}
    assert list(modes.values()) == ["0o700", "0o1777", "0o755", "0o644", "0o644"]
    assert members["bin"].linkname == "usr/bin"
    assert all(member.mtime == EPOCH for member in members.values())


def test_the_command_runs_as_an_unprivileged_user_with_a_volume_and_a_health_check():
    config = oci_layout.configuration("amd64", "0" * 64, EPOCH, "1.2")["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] + config["Cmd"] == ["/usr/bin/edge", "run"]
    assert list(config["Volumes"]) == ["/var/lib/sepa-edge"]
    assert "EDGE__DATA_DIR=/var/lib/sepa-edge" in config["Env"]
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/edge", "health"]
    assert "8000/tcp" not in config["ExposedPorts"], "only ports with TLS or OSCORE are reachable"


def test_the_archive_depends_on_the_content_only(root, tmp_path):
    first = archive(root, tmp_path / "first.tar")
    other = tmp_path / "other"
    shutil.copytree(root, other, symlinks=True)
    for path in other.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode & 0o777 | 0o060)
    assert archive(other, tmp_path / "second.tar") == first
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()


@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
def test_skopeo_reads_the_archive(root, tmp_path, transport):
    if shutil.which("skopeo") is None:
        pytest.skip("needs the Debian package skopeo")
    oci_layout.write(root, "amd64", "sepa-edge:1.2", tmp_path / "image.tar", EPOCH)
    command = ["skopeo", "--override-arch", "amd64", "inspect", "--config", f"{transport}:{tmp_path / 'image.tar'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["config"]["User"] == "65532:65532"


def test_the_compose_file_restricts_all_services_and_has_the_version():
    services = COMPOSE["services"]
    assert set(services) == {"mosquitto", "gateway", "history"}
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name
        assert "ports" not in service, name
        files = [volume for volume in service["volumes"] if volume.startswith("./")]
        assert all(file.endswith(":ro") and (IMAGES / "compose" / file.split(":")[0]).is_file() for file in files)
        used = {volume.partition(":")[0] for volume in service["volumes"] if volume not in files}
        assert used <= set(COMPOSE["volumes"]), name
    assert services["gateway"]["image"] == f"sepa-edge:${{EDGE_VERSION:-{__version__}}}"
    assert (
        services["gateway"]["healthcheck"]["test"]
        == oci_layout.configuration("amd64", "", 0, "")["config"]["Healthcheck"]["Test"]
    )
    assert services["history"]["profiles"] == ["spark"]
    assert (IMAGES / "compose" / services["history"]["build"]["dockerfile"]).exists()


def test_the_variables_of_the_compose_file_are_settings():
    from edge.config.problem_messages import fields

    for name in COMPOSE["services"]["gateway"]["environment"]:
        section, key = name.removeprefix("EDGE__").lower().split("__")
        assert f"{section}.{key}" in fields()


def test_mosquitto_keeps_messages_on_its_volume_and_accepts_local_connections_only():
    lines = (IMAGES / "compose" / "mosquitto.conf").read_text().splitlines()
    kept = dict(line.split(" ", 1) for line in lines if not line.startswith("#"))
    assert kept["listener"] == "1883 127.0.0.1"
    assert kept["persistence"] == "true"
    assert f"mosquitto:{kept['persistence_location'].rstrip('/')}" in COMPOSE["services"]["mosquitto"]["volumes"]


def test_the_history_has_a_user_and_may_load_libraries():
    """Hadoop needs the name of its user, and Spark unpacks native libraries into /tmp."""
    assert COMPOSE["services"]["history"]["tmpfs"] == ["/tmp:exec,mode=1777"]
    recipe = (IMAGES / "compose" / "history.Dockerfile").read_text()
    assert "useradd --uid 65532" in recipe
