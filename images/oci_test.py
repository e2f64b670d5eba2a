"""Run an OCI image of the gateway with a read-only root file system, as its user, without a container engine.

    python3 -m images.oci_test FILE

As root, on Linux of the image's architecture. A mount namespace has the image as a read-only file system, and a
temporary directory as its volume. Checks the digests, the size, the health command, that the command cannot write
outside of the volume, and that a second start has the data of the first one.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from images.checks import Failed
from images.oci_layout import DATA, USER

LIMIT: Final = 150_000_000
"""Most bytes of the unpacked image."""
_INSIDE: Final = f"""set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind,nosuid "$1"
mount --bind "$2" "$1/{DATA}"
mount -t proc proc "$1/proc"
root=$1
shift 2
exec setpriv --no-new-privs /usr/sbin/chroot --userspec={USER}:{USER} "$root" "$@"
"""
_PORTS: Final = {"HTTP": 18460, "WS": 18461, "MQTT": 18462, "COAP": 18463}
_WRITES: Final = """
import os
for directory, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(directory, name) not in ("/proc", "/var/lib/sepa-edge")]
    try:
        open(f"{directory}/written", "w")
    except OSError:
        continue
    raise SystemExit(f"{directory} is writable")
"""


def unpack(archive: Path, root: Path) -> dict[str, Any]:
    """Unpack the layer of an archive, after a check of all digests. Returns the configuration of the image."""
    with tarfile.open(archive) as tar:
        files = {name: file.read() for name in tar.getnames() if (file := tar.extractfile(name)) is not None}

    def blob(descriptor: dict[str, Any]) -> bytes:
        content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        if descriptor["digest"] != _digest(content) or descriptor["size"] != len(content):
            raise Failed(f"{descriptor['digest']} is not the digest of its content")
        return content

    manifest = json.loads(blob(json.loads(files["index.json"])["manifests"][0]))
    image: dict[str, Any] = json.loads(blob(manifest["config"]))
    (layer,) = (gzip.decompress(blob(each)) for each in manifest["layers"])
    if image["rootfs"]["diff_ids"] != [_digest(layer)]:
        raise Failed("the digest of the uncompressed layer is another one")
    root.mkdir()
    command = ["tar", "--extract", "--preserve-permissions", "--directory", str(root)]
    subprocess.run(command, input=layer, check=True)
    return image


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Container:
    """An unpacked image with a volume."""

    def __init__(self, archive: Path, directory: Path) -> None:
        self.root, self._volume = directory / "root", directory / "volume"
        self._of = unpack(archive, self.root)["config"]
        self._volume.mkdir()
        os.chown(self._volume, USER, USER)
        variables = dict(each.split("=", 1) for each in self._of["Env"])
        self._environment = variables | {f"EDGE__{name}__PORT": str(port) for name, port in _PORTS.items()}

    def _command(self, *words: str) -> list[str]:
        inside = ["sh", "-c", _INSIDE, "sh", str(self.root), str(self._volume), *words]
        return ["/usr/bin/env", "-i", *(f"{key}={value}" for key, value in self._environment.items()), *inside]

    def run(self, *words: str) -> str:
        """Run a command in the image. Returns its output."""
        command = ["unshare", "--mount", "--propagation", "private", *self._command(*words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode:
            raise Failed(f"{' '.join(words)[:100]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def healthy(self) -> str:
        """Wait until the health command of the image succeeds. Returns its output."""
        return self.run(*self._of["Healthcheck"]["Test"][1:], "--wait", "60")

    @contextmanager
    def started(self) -> Iterator[None]:
        """Start the command of the image, and stop it in order."""
        words = [*self._of["Entrypoint"], *self._of["Cmd"]]
        command = ["unshare", "--mount", "--propagation", "private", *self._command(*words)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sys.stderr) as process:
            try:
                yield
            finally:
                process.terminate()
                code = process.wait(30)
            if code:
                raise Failed(f"{self._of['StopSignal']} gives exit code {code}")


def check(archive: Path, directory: Path) -> None:
    """Check an image. Raises Failed with the reason."""
    container = Container(archive, directory)
    size = sum(path.lstat().st_size for path in container.root.rglob("*") if not path.is_dir())
    if size > LIMIT:
        raise Failed(f"the unpacked image has {size:,} bytes, more than {LIMIT:,}")
    if shells := [
        name for name in ("sh", "bash", "dash", "apt", "dpkg") if (container.root / "usr/bin" / name).exists()
    ]:
        raise Failed(f"the image contains {', '.join(shells)}")
    with container.started():
        print(container.healthy(), end="")
        container.run("/usr/bin/edge", "update", "INSERT DATA { <urn:a> <urn:b> 7 }")
        container.run("/usr/bin/python3", "-I", "-c", _WRITES)
    with container.started():
        container.healthy()
        if "7" not in container.run("/usr/bin/edge", "query", "SELECT ?n { <urn:a> <urn:b> ?n }"):
            raise Failed("the second start does not have the data of the first one")
    print(f"ok   {archive.name}: {archive.stat().st_size:,} bytes, unpacked {size:,}")


def main() -> int:
    """Check an image."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("archive", type=Path, metavar="FILE")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="oci-test-") as directory:
        try:
            check(given.archive, Path(directory))
        except Failed as failure:
            print(f"FAIL {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
