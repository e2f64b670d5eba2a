"""Write a directory as an OCI image of one layer, in an archive that Docker, Podman and skopeo read.

    python3 -m images.oci_layout --root DIR --arch ARCH --tag NAME:TAG --out FILE

The format is the OCI image layout 1.0 (github.com/opencontainers/image-spec). `manifest.json` is for `docker load` of
versions without it. The time of all files is SOURCE_DATE_EPOCH, and they belong to root, except for the directories
that the gateway writes: the same directory gives the same file.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

USER: Final = 65532
"""User and group of the gateway."""
DATA: Final = "var/lib/sepa-edge"
_MODES: Final = {DATA: 0o700, "srv/landing": 0o755, "tmp": 0o1777}
"""Permissions of directories that not only root writes. All except tmp belong to the gateway."""
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_HEALTH: Final = {
    "Test": ["CMD", "/usr/bin/edge", "health"],
    "Interval": 30_000_000_000,
    "Timeout": 15_000_000_000,
    "StartPeriod": 60_000_000_000,
    "Retries": 3,
}
"""The health check of Docker, with times in nanoseconds. OCI has none, and Podman ignores it."""


def layer(root: Path, epoch: int) -> bytes:
    """Return the files of a directory as an uncompressed tar file."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            member = tar.gettarinfo(path, arcname=str(path.relative_to(root)))
            owner = USER if member.name in _MODES and member.name != "tmp" else 0
            member.uid = member.gid = owner
            member.uname = member.gname = ""
            member.mtime = epoch
            member.mode = _mode(member)
            if member.islnk():  # the same content as another file: written again, so that the order does not matter
                member.type, member.linkname, member.size = tarfile.REGTYPE, "", path.stat().st_size
            if member.isreg():
                with path.open("rb") as file:
                    tar.addfile(member, file)
            else:
                tar.addfile(member)
    return content.getvalue()


def _mode(member: tarfile.TarInfo) -> int:
    """Return permissions that do not depend on the umask of the build machine; no file has the set-user-ID bit."""
    executable = member.isdir() or member.issym() or member.mode & 0o100
    return _MODES.get(member.name, 0o755 if executable else 0o644)


def configuration(architecture: str, digest: str, epoch: int, version: str) -> dict[str, Any]:
    """Return the description of the image. `digest`: of the uncompressed layer."""
    made = f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return {
        "created": made,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin", f"EDGE__DATA_DIR=/{DATA}", "LANG=C.UTF-8"],
            "Entrypoint": ["/usr/bin/edge"],
            "Cmd": ["run"],
            "WorkingDir": f"/{DATA}",
            "Volumes": {f"/{DATA}": {}},
            "ExposedPorts": {f"{port}/tcp": {} for port in (8443, 8883, 9443)} | {"5683/udp": {}},
            "StopSignal": "SIGTERM",
            "Healthcheck": _HEALTH,
            "Labels": {
                "org.opencontainers.image.title": "sepa-edge",
                "org.opencontainers.image.description": "Semantic edge gateway",
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.version": version,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": made, "created_by": "images/oci"}],
    }


def write(root: Path, architecture: str, tag: str, out: Path, epoch: int) -> str:
    """Write the archive. Returns the digest of the manifest."""
    content = layer(root, epoch)
    packed = gzip.compress(content, compresslevel=9, mtime=0)
    version = tag.partition(":")[2]
    image = configuration(architecture, hashlib.sha256(content).hexdigest(), epoch, version)
    described = json.dumps(image, sort_keys=True).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _descriptor(_CONFIG, described),
        "layers": [_descriptor(_LAYER, packed)],
    }
    stated = json.dumps(manifest, sort_keys=True).encode()
    entry = _descriptor(_MANIFEST, stated) | {
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": tag},
    }
    files = {_blob(blob): blob for blob in (described, packed, stated)}
    for_docker = [{"Config": _blob(described), "RepoTags": [tag], "Layers": [_blob(packed)]}]
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}, sort_keys=True).encode()
    files["manifest.json"] = json.dumps(for_docker, sort_keys=True).encode()
    files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, blob in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(blob), epoch
            tar.addfile(member, io.BytesIO(blob))
    return str(entry["digest"])


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _blob(content: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def main() -> None:
    """Write the archive."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--root", type=Path, required=True, metavar="DIR")
    options.add_argument("--arch", choices=("amd64", "arm64"), required=True)
    options.add_argument("--tag", required=True, metavar="NAME:TAG")
    options.add_argument("--out", type=Path, required=True, metavar="FILE")
    given = options.parse_args()
    write(given.root, given.arch, given.tag, given.out, int(os.environ["SOURCE_DATE_EPOCH"]))


if __name__ == "__main__":
    main()
