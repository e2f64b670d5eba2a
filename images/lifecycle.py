"""The life of the Debian package on a machine: installed, upgraded, removed, installed again, purged."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

from images.checks import Failed, check
from images.container import Container, wait

NUMBER = "SELECT ?n { <urn:of> <urn:number> ?n }"
EDIT = "# An edit by the owner."
VALUE = (
    "SELECT ?v { <urn:cellar> <http://www.w3.org/ns/sosa/hasResult>/<http://qudt.org/1.1/schema/qudt#numericValue> ?v }"
)
MODES = ["700 sepa-edge:sepa-edge", "750 root:sepa-edge", "644 root:sepa-edge", "700 root:root"]
READY = 90
"""Seconds that a gateway may take until it is ready."""


def variant(package: Path, directory: Path, version: str, settings: str = "") -> Path:
    """Make a later version of the package: one more module, one room less, and other initial settings."""
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run(["dpkg-deb", "--raw-extract", package, directory], check=True)
    control, lib = directory / "DEBIAN" / "control", directory / "usr" / "lib" / "sepa-edge"
    before = next(line for line in control.read_text().splitlines() if line.startswith("Version: "))
    control.write_text(control.read_text().replace(before, f"Version: {version}"))
    (lib / "edge" / "__init__.py").write_text(f'"""Of the test."""\n\n__version__ = "{version}"\n')
    (lib / "edge" / "added.py").write_text('"""Of the test."""\n')
    shutil.rmtree(lib / "edge" / "bench")
    if settings:
        file = directory / "etc" / "sepa-edge" / "edge.toml"
        file.write_text(f"{file.read_text()}\n{settings}\n")
    built = directory.with_name(f"sepa-edge_{version}.deb")
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", directory, built], check=True, capture_output=True
    )
    return built


class MachineOwner:
    """Operations that the owner of the machine performs."""

    def __init__(self, machine: Container) -> None:
        self.machine = machine

    def apt(self, *words: str) -> float:
        """Run apt-get. Returns the duration in seconds."""
        began = time.monotonic()
        self.machine.run(f"cd /srv && apt-get --quiet --yes {' '.join(words)}")
        return time.monotonic() - began

    def ready(self) -> float:
        """Wait until the gateway is healthy. Returns the duration in seconds."""
        began = time.monotonic()
        try:
            self.machine.run(f"edge health --wait {READY}")
        except Failed:
            print(self.machine.says("systemctl status --no-pager --lines=30 edge mosquitto"))
            raise
        return time.monotonic() - began

    def numbers(self) -> set[str]:
        """Return the numbers in the graph that `put` inserted."""
        rows = json.loads(self.machine.run(f"edge query --format json '{NUMBER}'"))["results"]["bindings"]
        return {row["n"]["value"] for row in rows}

    def put(self, number: int) -> None:
        """Insert a number into the graph."""
        self.machine.run(f"edge update 'INSERT DATA {{ <urn:of> <urn:number> {number} }}'")

    def failed(self) -> str:
        """Return the failed units."""
        return self.machine.says("systemctl --failed --no-legend --plain")

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.machine.says(f"systemctl show {unit} --property={name} --value")

    def works(self, when: str, numbers: set[str]) -> None:
        """Check that the service runs, is healthy, and has its data."""
        took = self.ready()
        status, body = self.machine.get("http://127.0.0.1:8000/health")
        check(
            f"{when} the gateway is healthy", status == 200 and json.loads(body)["status"] == "ready", f"{took:.1f} s"
        )
        check(f"{when} its data is there", (found := self.numbers()) == numbers, sorted(found))
        check(f"{when} no unit has failed", not (failed := self.failed()), failed)
        check(f"{when} the service was started once", self.show("edge", "NRestarts") == "0")

    def stale(self) -> str:
        """Return compiled modules without a source, and sources that are not compiled."""
        code = (
            "import importlib.util, pathlib\n"
            "lib = pathlib.Path('/usr/lib/sepa-edge')\n"
            "compiled = {importlib.util.source_from_cache(str(each)) for each in lib.rglob('*.pyc')}\n"
            "print(*sorted(compiled ^ {str(each) for each in lib.rglob('*.py')})[:5])"
        )
        return self.machine.run(f'python3 -c "{code}"')


def without_systemd(machine: Container) -> None:
    """Install in a chroot, like the image build, and then start the system."""
    began = time.monotonic()
    machine.at_rest(
        "cd /srv && DEBIAN_FRONTEND=noninteractive apt-get -q --yes --no-install-recommends install ./sepa-edge.deb"
    )
    check("apt installs it where no systemd runs", True, f"{time.monotonic() - began:.0f} s")
    machine.start()
    owner = MachineOwner(machine)
    owner.works("at the first start of that system", set())
    machine.stop()
    machine.at_rest("DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes purge sepa-edge")
    check("apt purges it there, too", not (left := leftovers(machine)), left)


def leftovers(machine: Container) -> str:
    """Return the files with the package's names or of its user, except for the records of dpkg, apt and the journal."""
    found = []
    for path in machine.root.rglob("*"):
        name = str(path.relative_to(machine.root))
        if name.startswith(("proc/", "sys/", "dev/", "run/", "srv/", "var/log/", "var/cache/apt/", "var/lib/apt/")):
            continue
        ours = path.name.startswith(("sepa-edge", "edge.", "edge-")) or path.lstat().st_uid == 871
        if ours and not name.startswith("var/lib/dpkg/info/"):
            found.append(f"/{name}")
    return " ".join(sorted(found))


def installed(machine: Container) -> None:
    """Install the package with its recommended packages on a running machine."""
    owner = MachineOwner(machine)
    took = owner.apt("install", "./sepa-edge.deb")
    check("apt installs it on a machine that runs", True, f"{took:.0f} s")
    owner.works("after the installation", set())
    owner.put(1)
    check("an update is found by a query", owner.numbers() == {"1"})
    check("the service starts with the machine", machine.says("systemctl is-enabled edge") == "enabled")
    check("nothing differs from the package", not (differs := machine.says("dpkg --verify sepa-edge")), differs)
    check("each module is compiled", not (stale := owner.stale()), stale)
    modes = machine.run(
        "stat -c '%a %U:%G' /var/lib/sepa-edge /etc/sepa-edge /etc/sepa-edge/edge.toml /etc/sepa-edge/secrets"
    )
    check("files are whose they should be", modes.splitlines() == MODES, modes.replace("\n", ", "))
    exposed = machine.run("systemd-analyze --no-pager security edge | tail -1")
    check("it is as shut in as it says", " 1.5 " in exposed, exposed.split(": ")[-1])
    machine.run("runuser -u sepa-edge -- edge clients list")
    check("commands run as the gateway's user", True)


def with_mosquitto(machine: Container) -> None:
    """Check that Mosquitto is installed, is the gateway's broker, and runs under the package's sandbox settings."""
    owner = MachineOwner(machine)
    check("Mosquitto is shut in", owner.show("mosquitto", "ProtectSystem") == "strict")
    exposed = machine.run("systemd-analyze --no-pager security mosquitto | tail -1")
    check("and runs", owner.show("mosquitto", "ActiveState") == "active", exposed.split(": ")[-1])
    machine.run("""edge update 'PREFIX sosa: <http://www.w3.org/ns/sosa/>
        INSERT DATA { <urn:cellar> a sosa:Observation ; <http://mml.arces.unibo.it/monitor#hasMqttTopic> "cellar" }'""")
    machine.run("edge publish cellar 12.5")
    wait(lambda: "12.5" in machine.run(f"edge query '{VALUE}'"), 20, "the reading")
    check("a reading published to Mosquitto is in the graph", True)
    machine.run("systemctl restart mosquitto")
    machine.run("edge publish cellar 13.5")
    wait(lambda: "13.5" in machine.run(f"edge query '{VALUE}'"), 20, "the next reading")
    check("a reading after a restart of Mosquitto is in the graph", not (failed := owner.failed()), failed)


def upgraded(machine: Container) -> None:
    """Upgrade twice: with unchanged initial settings, and with changed ones."""
    owner = MachineOwner(machine)
    machine.run(f"cd /etc/sepa-edge; echo '{EDIT}' >>edge.toml; echo word >secrets/mine; chmod 600 secrets/mine")
    owner.put(2)
    before = owner.show("edge", "MainPID")
    took = owner.apt("install", "./newer.deb")
    check("apt upgrades it", "99.0" in machine.run("edge --version"), f"{took:.0f} s")
    owner.works("after the upgrade", {"1", "2"})
    check("the new one runs", owner.show("edge", "MainPID") != before)
    check("files that the new version lacks are gone", not (stale := owner.stale()), stale)
    kept(machine, "after the upgrade")
    took = owner.apt("--option", "Dpkg::Options::=--force-confold", "install", "./newest.deb")
    owner.works("after another with other settings to begin with", {"1", "2"})
    kept(machine, "after it")
    owner.machine.run("systemctl disable --now --quiet edge")
    owner.apt("--reinstall", "--option", "Dpkg::Options::=--force-confold", "install", "./newest.deb")
    state = machine.says("systemctl is-enabled edge"), machine.says("systemctl is-active edge")
    check("a service that was switched off stays off after an upgrade", state == ("disabled", "inactive"), state)
    owner.machine.run("systemctl enable --now --quiet edge")
    owner.works("switched on again", {"1", "2"})


def kept(machine: Container, when: str) -> None:
    """Check that the owner's settings and passwords are unchanged."""
    check(f"{when} the settings are the owner's", EDIT in machine.run("cat /etc/sepa-edge/edge.toml"))
    check(f"{when} so are the passwords", machine.run("cat /etc/sepa-edge/secrets/mine") == "word")


def removed(machine: Container) -> None:
    """Remove the package, which keeps data and settings, and install it again."""
    owner = MachineOwner(machine)
    owner.apt("remove", "sepa-edge")
    check(
        "after the removal the service is gone",
        owner.show("edge", "LoadState") == "not-found",
        owner.show("edge", "LoadState"),
    )
    check("its processes, too", not (left := machine.says("pgrep --uid sepa-edge")), left)
    there = machine.says("ls -d /usr/lib/sepa-edge /usr/bin/edge /usr/lib/systemd/system/*edge* 2>/dev/null")
    check("its files, too", not there, there)
    check("its data is kept", machine.says("ls /var/lib/sepa-edge/edge.sqlite3") != "")
    kept(machine, "after the removal")
    check("after the removal no unit has failed", not (failed := owner.failed()), failed)
    check("Mosquitto goes on", owner.show("mosquitto", "ActiveState") == "active")
    owner.apt("--option", "Dpkg::Options::=--force-confold", "install", "./newest.deb")
    owner.works("installed again", {"1", "2"})
    kept(machine, "installed again")


def found_mosquitto(machine: Container) -> None:
    """Install next to an existing Mosquitto, which keeps its settings until it is restarted."""
    owner = MachineOwner(machine)
    machine.run("systemctl restart mosquitto")
    check("Mosquitto was there before", owner.show("mosquitto", "ProtectSystem") == "no")
    before = owner.show("mosquitto", "MainPID")
    owner.apt("install", "./sepa-edge.deb")
    owner.works("next to an existing Mosquitto", set())
    check("it was not disturbed", owner.show("mosquitto", "MainPID") == before)
    with_mosquitto(machine)


def purged(machine: Container) -> None:
    """Purge the package. Only the user remains, so that its number is not used again."""
    owner = MachineOwner(machine)
    machine.run("cp --archive /var/lib/sepa-edge /var/lib/sepa-edge.before-restore")
    owner.apt("purge", "sepa-edge")
    check("after the purge nothing is left", not (left := leftovers(machine)), left)
    check("but its user", "sepa-edge:x:871:" in machine.run("getent passwd sepa-edge"))
    check("after the purge no unit has failed", not (failed := owner.failed()), failed)


def life(base: Container, package: Path, work: Path) -> None:
    """Run all steps on a new system."""
    machine = base.copy(work / f"{base.root.name}-machine")
    shutil.copy(package, machine.root / "srv" / "sepa-edge.deb")
    shutil.copy(variant(package, work / "newer", "99.0"), machine.root / "srv" / "newer.deb")
    shutil.copy(variant(package, work / "newest", "99.1", "# As it comes now."), machine.root / "srv" / "newest.deb")
    # Dependencies and recommended packages are downloaded now: afterwards the system has no network.
    fetch = "apt-get --quiet --yes --download-only install ./sepa-edge.deb"
    machine.at_rest(f"cd /srv && apt-get --quiet update && {fetch}", network=True)
    try:
        without_systemd(machine)
        machine.start()
        installed(machine)
        with_mosquitto(machine)
        upgraded(machine)
        removed(machine)
        purged(machine)
        found_mosquitto(machine)
        purged(machine)
    finally:
        machine.stop()
