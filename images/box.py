"""A virtual machine that starts from a disk image, with the ports, the files and the shell that its owner uses."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from images.checks import Failed

_T = TypeVar("_T")

CARD = 4 << 30
"""Size in bytes of the card that the image is flashed to."""
BOOT = "@@4M"
"""Offset of the boot partition, in the notation of mtools."""
PORTS = {"https": 8443, "wss": 9443, "mqtts": 8883, "coap": 5683, "ssh": 22}

# An Atom of before 2013 executes nothing speculatively, so the kernel needs no mitigations. It has no `rep movsb` for
# large copies and no AVX, both of which are slow under emulation. Kernels oops with an emulated `cx16`.
PC = ["qemu-system-x86_64", "-machine", "q35,sata=off,smbus=off"]
PC += ["-cpu", "Nehalem,model=28,stepping=10,-cx16,+arat"]
PI = ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"]
"""A machine with the processor of a Pi 4, and with UEFI, which U-Boot provides on the board.

QEMU's models of the boards lack too many devices.
"""
PATIENCE = 1800
"""Limit of each wait in seconds."""
HANDOVER = 300
"""Seconds without output between firmware and kernel after which the power is cut. Usual are six."""
STOPS = 3
"""Number of such stops after which the test fails."""
ANSWER = 300
"""Limit in seconds for one answer of a gateway that serves."""


class Box:
    """A virtual machine that starts from a disk image."""

    def __init__(self, directory: Path, image: Path) -> None:
        self.directory = directory
        self.image = image
        self.disk = directory / "card.img"
        self.console = directory / "console.log"
        self.monitor = directory / "monitor"
        self.key = directory / "key"
        self.process: subprocess.Popen[bytes] | None = None
        self.ports: dict[str, int] = {}
        self.stops = 0
        self.stick: Path | None = None
        self.machine, self.firmware = (PI, "AAVMF") if image.stem.endswith("_arm64") else (PC, "OVMF")
        self.console.touch()
        subprocess.run(["cp", "--sparse=always", image, self.disk], check=True)
        with self.disk.open("r+b") as file:
            file.truncate(CARD)
        shutil.copy(firmware(self.firmware, "VARS"), directory / "vars.fd")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)

    def put(self, name: str, text: str) -> None:
        """Write a file of the owner to the boot partition."""
        file = self.directory / "put"
        file.write_text(text)
        subprocess.run(["mcopy", "-o", "-i", f"{self.disk}{BOOT}", file, f"::{name}"], check=True)

    def get(self, name: str) -> str:
        """Return a file of the boot partition, while the box is off."""
        got = subprocess.run(["mtype", "-i", f"{self.disk}{BOOT}", f"::{name}"], check=True, capture_output=True)
        return got.stdout.decode()

    def start(self) -> None:
        """Switch the box on."""
        self.ports = {service: free_port(service == "coap") for service in PORTS}
        forwards = "".join(
            f",hostfwd={'udp' if service == 'coap' else 'tcp'}:127.0.0.1:{self.ports[service]}-:{port}"
            for service, port in PORTS.items()
        )
        # The power cut loses all data that the virtual machine has not sent to its disk. Data that QEMU has written
        # stays in any mode of the cache, because this machine continues to run. So waiting for the disk of this machine
        # would only take time.
        drives = [
            f"if=pflash,format=raw,readonly=on,file={firmware(self.firmware, 'CODE')}",
            f"if=pflash,format=raw,file={self.directory / 'vars.fd'}",
            f"if=none,id=card,format=raw,file={self.disk},cache=unsafe",
        ]
        if self.stick is not None:
            drives.append(f"if=none,id=stick,format=raw,file={self.stick}")
        # One CPU: with two threads of QEMU, one can execute an instruction that the other is rewriting (static keys of
        # the kernel). Real processors allow that; QEMU 7.2 sometimes raises an exception, and the kernel panics.
        command = [*self.machine, "-accel", "tcg", "-smp", "1", "-m", "1024"]
        # No watchdog: it would restart the box if this machine is too busy to run it for 14 s.
        command += ["-action", "watchdog=none", "-nodefaults", "-display", "none", "-serial", f"file:{self.console}"]
        command += ["-monitor", f"unix:{self.monitor},server=on,wait=off"]
        command += [word for drive in drives for word in ("-drive", drive)]
        command += ["-device", "virtio-blk-pci,drive=card", "-device", "virtio-rng-pci", "-device", "i6300esb"]
        command += ["-device", "virtio-blk-pci,drive=stick"] if self.stick else []
        command += ["-netdev", f"user,id=net{forwards}", "-device", "virtio-net-pci,netdev=net,romfile="]
        self.console.write_bytes(b"")
        with (self.directory / "qemu.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def cut(self) -> None:
        """Cut the power."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def worked(self) -> float:
        """Return the processor time in seconds since the start, which excludes other work of this machine."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def said(self) -> str:
        """Return the text on the console without escape sequences."""
        text = self.console.read_bytes().decode("utf-8", "replace").replace("\r", "")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)

    def stopped_at_handover(self) -> bool:
        """Return whether the firmware has started the boot loader long ago, and nothing came after it."""
        last = self.said().strip().rpartition("\n")[2]
        return last.startswith("BdsDxe: starting") and time.time() - self.console.stat().st_mtime > HANDOVER

    def registers(self) -> str:
        """Return the processor's registers as QEMU's monitor prints them, until it has been silent for two seconds."""
        text = b""
        with socket.socket(socket.AF_UNIX) as monitor, suppress(OSError):  # a timeout, or QEMU has ended
            monitor.settimeout(2)
            monitor.connect(str(self.monitor))
            monitor.sendall(b"info registers\n")
            while more := monitor.recv(65536):
                text += more
        return text.decode("utf-8", "replace").partition("CPU#0")[2].partition("FCW")[0].strip()

    def wait(self, condition: Callable[[], _T], what: str) -> _T:
        """Return the first true value of a condition. Network errors of the condition count as false."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            for bad in ("Kernel panic", "end trace", "Emergency Shell"):
                if bad in self.said():
                    raise Failed(f"{bad} on the console")
            if self.process is None or self.process.poll() is not None:
                raise Failed(f"QEMU ended: {(self.directory / 'qemu.log').read_text()[-300:]}")
            if self.stopped_at_handover():
                self.stops += 1
                if self.stops >= STOPS:
                    raise Failed(f"{self.stops} starts stopped before the kernel")
                print(
                    f"     stopped before the kernel, so the power is cut; the registers:\n{self.registers()}",
                    flush=True,
                )
                self.cut()
                self.start()
            try:
                if value := condition():
                    return value
            except (OSError, urllib.error.URLError, subprocess.SubprocessError):
                pass
            time.sleep(1)
        raise Failed(f"waited {PATIENCE} s in vain for {what}")

    def run(self, command: str) -> str:
        """Run a command over SSH as the owner, and return its output."""
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        options += ["-i", str(self.key), "-p", str(self.ports["ssh"]), "-o", f"ConnectTimeout={ANSWER}"]
        options += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=20"]
        options += ["-o", "KexAlgorithms=curve25519-sha256"]  # the quickest under emulation
        words = ["ssh", *options, "root@127.0.0.1", command]
        done = subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE)
        return done.stdout.decode().strip()

    def until(self, command: str) -> None:
        """Wait in the box until a command succeeds: a login for each attempt would take most of its processor time."""
        self.run(f"until {command}; do sleep 1; done")


def firmware(name: str, part: str) -> Path:
    """Return the path of a part of Debian's UEFI for virtual machines."""
    for file in (Path(f"/usr/share/{name}/{name}_{part}_4M.fd"), Path(f"/usr/share/{name}/{name}_{part}.fd")):
        if file.exists():
            return file
    raise Failed("UEFI for QEMU is missing; install the packages ovmf and qemu-efi-aarch64")


def free_port(datagrams: bool) -> int:
    """Return an unused port of this machine."""
    with socket.socket(type=socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM) as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])
