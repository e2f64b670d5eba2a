"""A Debian system in a directory, started by systemd-nspawn, with processes and a network of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from images.checks import Failed

T = TypeVar("T")

HERE = ["--register=no"] if Path("/run/systemd/system").exists() else ["--register=no", "--keep-unit"]
"""Without systemd on this machine, systemd-nspawn cannot request a scope for the container."""
OURS = [f"--setenv={name}" for name in ("http_proxy", "https_proxy", "no_proxy", "PIP_CERT", "PIP_INDEX_URL")]
"""This machine's settings for network access, for the steps that need the network."""
AUTHORITIES = Path("/etc/ssl/certs")


def wait(condition: Callable[[], T], seconds: float, what: str) -> T:
    """Return the first true value of a condition."""
    ends = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > ends:
            raise Failed(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.2)
    return value


class Container:
    """A system in a directory. Its changes to the directory are permanent."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.console = root.with_suffix(".console")
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader = 0

    @classmethod
    def made(cls, root: Path, suite: str, packages: Sequence[str], mirror: str) -> Container:
        """Make a system from Debian packages. An existing system is used as it is."""
        if not root.exists():
            unfinished = root.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}"]
            subprocess.run([*command, suite, unfinished, mirror], check=True)
            # Files of an installed Debian. Without a machine id, this is a first start, and systemd asks questions.
            (unfinished / "etc" / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
            (unfinished / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
            unfinished.rename(root)
        return cls(root)

    def copy(self, root: Path) -> Container:
        """Make a copy of this system."""
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "--archive", "--reflink=auto", self.root, root], check=True)
        return Container(root)

    def at_rest(self, command: str, *, network: bool = False) -> str:
        """Run a command without a running systemd, as in a chroot, and return its output."""
        options = ["--bind-ro=/etc/ssl/certs", "--resolv-conf=copy-host", *OURS] if network else ["--private-network"]
        nspawn = ["systemd-nspawn", "--quiet", *HERE, "--directory", str(self.root), "--pipe", "--as-pid2", *options]
        return _output([*nspawn, "sh", "-ec", command])

    def start(self) -> float:
        """Start the system. Returns the seconds until systemd had started all units."""
        began = time.monotonic()
        # Without bpf, systemd in the container could not restrict the devices of services.
        nspawn = [
            "systemd-nspawn",
            "--quiet",
            *HERE,
            "--directory",
            str(self.root),
            "--boot",
            "--system-call-filter=bpf",
        ]
        with self.console.open("wb") as console:
            self._nspawn = subprocess.Popen(
                [*nspawn, "--console=pipe", "--private-network", "--resolv-conf=off"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                # Unified control groups, the only ones that current systemd supports, also if this machine uses others.
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )
        self._leader = wait(self._find_leader, 30, "the first process")
        wait(lambda: self.says("systemctl is-system-running") in {"running", "degraded"}, 120, "the end of the start")
        return time.monotonic() - began

    def _find_leader(self) -> int:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise Failed(f"systemd-nspawn ended: {self.console.read_text(errors='replace')[-500:]}")
        for child in Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
        return 0

    def run(self, command: str, *, seconds: float = 300) -> str:
        """Run a command as root in the running system, and return its output."""
        return _output([*self._inside(), "sh", "-ec", command], seconds)

    def says(self, command: str) -> str:
        """Return the output of a command that may fail."""
        done = subprocess.run([*self._inside(), "sh", "-c", command], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def _inside(self) -> list[str]:
        # The command enters all namespaces of the system, but not its control groups.
        enter = ["nsenter", f"--target={self._leader}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root"]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        return [*enter, "--wd", *clean, "DEBIAN_FRONTEND=noninteractive"]

    def get(self, url: str) -> tuple[int, str]:
        """Request a URL from inside the system, and return status and body."""
        code = (
            "import sys, json, urllib.request, urllib.error\n"
            "try: answer = urllib.request.urlopen(sys.argv[1], timeout=30)\n"
            "except urllib.error.HTTPError as error: answer = error\n"
            "except OSError as error: print(json.dumps([0, str(error)])); sys.exit()\n"
            "print(json.dumps([answer.status, answer.read().decode()]))"
        )
        done = subprocess.run([*self._inside(), "python3", "-c", code, url], capture_output=True, text=True, check=True)
        status, body = json.loads(done.stdout)
        return status, body

    def stop(self) -> None:
        """Shut the system down."""
        if self._nspawn is None:
            return
        self.says("systemctl poweroff")
        try:
            self._nspawn.wait(60)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait()
        self._nspawn = None


def _output(command: Sequence[str | Path], seconds: float = 1800) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    text = done.stdout.decode(errors="replace").strip()
    if done.returncode:
        raise Failed(f"{command[-1]}: exit code {done.returncode}\n{text[-3000:]}")
    return text
