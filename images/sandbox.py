"""The project's tests as edge.service: on a running systemd, under the sandbox settings of the service."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

from images.checks import check
from images.container import Container

ROOT = Path(__file__).parents[1]
PLACE = "/srv/sepa-edge"
"""Directory of the sources in the system, which the service may read but not write."""
PACKAGES = (
    *("python3-venv", "make", "mosquitto", "mosquitto-clients", "libcoap3-bin", "faketime", "openssl"),
    *("iproute2", "procps", "util-linux"),
)
"""Debian packages that the tests need."""

TESTS = """\
# Differences between the tests and edge.service. None of them changes the permissions of the service.
[Service]
# The command ends with an exit code, and does not notify systemd.
Type=oneshot
Restart=no
WatchdogSec=0
TimeoutStartSec=infinity
ExecStart=
ExecStart={command}
StandardOutput=truncate:/run/said
StandardError=inherit
WorkingDirectory={place}
# Each test has its own settings.
UnsetEnvironment=EDGE_CONFIG
# Directories for other files of tests and tools, because the sources are read-only.
Environment=PYTHONDONTWRITEBYTECODE=1 TMPDIR=%S/sepa-edge/tmp HYPOTHESIS_STORAGE_DIRECTORY=%S/sepa-edge/hypothesis
Environment=CI=true
# Several gateways, Mosquitto and pytest run at once.
MemoryHigh=infinity
MemoryMax=infinity
TasksMax=infinity
"""

MAIN = (
    *("adapters", "mapping", "gates", "gateway", "client", "faults", "cli", "outbox", "security", "backup", "doctor"),
    *("examples", "jsap", "protocol", "test_app.py", "test_clean_stop.py", "test_last_run.py", "test_listener.py"),
    *(
        "test_timers_crash.py",
        "engine/test_forked_evaluation.py",
        "engine/test_journal_crash.py",
        "engine/test_timers.py",
    ),
)
"""Tests of the gateway's behaviour towards clients and devices.

Excluded are the Spark side, which runs on other machines; the web page, because a browser's own sandbox needs
permissions that the service lacks; benchmarks; tests of the sources; and purely computational tests of the engine.
"""
LEFT_OUT = {
    "tests/gates/coap/test_libcoap_oscore.py::test_blockwise_request_and_response": (
        "the client of libcoap 4.3.5 cannot encrypt it"
    ),
}
"""Excluded tests by name, with the reason: a need of the test itself that the gateway does not have."""

PROBES = r"""
import ctypes, mmap, os, socket, sys

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)

def listed(place):
    if not os.listdir(place):
        raise OSError("nothing is seen")

own = os.environ["STATE_DIRECTORY"] + "/probe"
open(own, "w").close()
REFUSED = {
    "to write anywhere but to its directory": lambda: open("/srv/anybody/probe", "w"),
    "to see what others have in /tmp": lambda: os.stat("/tmp/of-others"),
    "to see home directories": lambda: listed("/home"),
    "to see other processes": lambda: os.stat("/proc/1"),
    "to open other devices than serial ports": lambda: os.open("/dev/probe", os.O_RDWR),
    "to trace processes": lambda: call("ptrace", 0, 0, 0, 0),
    "new namespaces": lambda: call("unshare", 0x10000000),
    "memory that is written and run": lambda: mmap.mmap(-1, 4096, prot=7),
    "priority over all others": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "files that run as their owner": lambda: os.chmod(own, 0o4755),
    "sockets of other kinds": lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET),
    "to be another architecture": lambda: call("personality", 8),
}
for what, act in REFUSED.items():
    try:
        act()
    except OSError as error:
        print("refused", what, error.strerror or error, sep="|")
    else:
        print("allowed", what, "", sep="|")
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines())
print("refused" if int(status["CapBnd"], 16) == 0 else "allowed", "any capability", "", sep="|")
print("refused" if status["NoNewPrivs"] == "1" else "allowed", "new privileges", "", sep="|")
"""


def machine(base: Container, root: Path) -> Container:
    """Create a system with the sources and their virtual environment. An existing system gets the current sources."""
    made = Container(root) if root.exists() else base.copy(root)
    install = "apt-get --quiet update && apt-get --quiet --yes --no-install-recommends install"
    made.at_rest(f"export DEBIAN_FRONTEND=noninteractive; {install} {' '.join(PACKAGES)}", network=True)
    made.at_rest("systemctl --quiet disable mosquitto")
    copy(made.root / PLACE.strip("/"))
    began = time.monotonic()
    # /tmp is in memory, and some packages take a gigabyte to install.
    made.at_rest(f"cd {PLACE} && TMPDIR=/var/tmp make --no-print-directory .venv/.test-ready", network=True)
    print(f"     (.venv was made in {time.monotonic() - began:.0f} s)", flush=True)
    return made


def copy(place: Path) -> None:
    """Copy the sources without generated files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    place.mkdir(exist_ok=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    subprocess.run(["chown", "--recursive", "root:root", place], check=True)


class SandboxService:
    """edge.service in a system, with a command in place of the gateway."""

    def __init__(self, system: Container) -> None:
        self.system = system
        units = system.root / "etc" / "systemd" / "system"
        shutil.copy(ROOT / "systemd" / "edge.service", units)
        shutil.copy(
            ROOT / "systemd" / "sepa-edge.sysusers", system.root / "usr" / "lib" / "sysusers.d" / "sepa-edge.conf"
        )
        (system.root / "etc" / "sepa-edge" / "secrets").mkdir(parents=True, exist_ok=True)
        self.difference = units / "edge.service.d" / "tests.conf"
        self.difference.parent.mkdir(exist_ok=True)

    def does(self, command: str) -> tuple[bool, str]:
        """Return whether the command succeeded, and its output."""
        self.difference.write_text(TESTS.format(command=command, place=PLACE))
        self.system.run("systemctl daemon-reload")
        state = self.system.says("systemctl start edge && echo done")
        return state == "done", self.system.run("cat /run/said")


def runs(system: Container, words: list[str]) -> None:
    """Run the tests under the settings of the service."""
    system.start()
    try:
        service = SandboxService(system)
        system.run("systemd-sysusers; install -d -o sepa-edge -g sepa-edge -m 700 /var/lib/sepa-edge/tmp")
        probe(system, service)
        paths = [f"tests/{name}" for name in MAIN]
        options = ["-p", "no:cacheprovider", "--basetemp=%S/sepa-edge/tests", "--numprocesses=2", "--color=no", "-q"]
        options += [f"--deselect={name}" for name in LEFT_OUT]
        began = time.monotonic()
        good, said = service.does(" ".join([f"{PLACE}/.venv/bin/python -m pytest", *options, *(words or paths)]))
        (system.root.parent / "tests.log").write_text(said)
        last = said.splitlines()[-1] if said else ""
        skipped = [line for line in said.splitlines() if line.startswith("SKIPPED")]
        print("\n".join(skipped) if good else said[-6000:])
        check(
            "the tests pass as edge.service",
            good and re.search(r"\d+ passed", last),
            f"{last}; {time.monotonic() - began:.0f} s",
        )
    finally:
        system.stop()


def probe(system: Container, service: SandboxService) -> None:
    """Check that the settings take effect here, by trying the forbidden operations."""
    misc = [line.split() for line in Path("/proc/misc").read_text().splitlines()]
    device = next(number for number, name in misc if name in {"fuse", "tun"})
    system.run(
        f"mknod -m 666 /dev/probe c 10 {device}; install -d -m 1777 /srv/anybody; mkdir -p /home/me"
        "; echo mine >/tmp/of-others; chmod 644 /tmp/of-others"
    )
    (system.root / "srv" / "probes.py").write_text(PROBES)
    good, said = service.does("/usr/bin/python3 /srv/probes.py")
    check("the probes run", good, said if not good else "")
    for line in said.splitlines():
        state, what, why = line.split("|")
        check(f"edge.service is refused {what}", state == "refused", why)
    exposed = system.run("systemd-analyze --no-pager security edge | tail -1")
    check("the tests' own settings expose nothing more", " 1.5 " in exposed, exposed.split(": ")[-1])
