"""Set up the box: settings, secrets and certificate at the first start, and the owner's files on the boot partition at
each start. Runs as root before the gateway and its broker. Steps that are already done have no effect."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import tempfile
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path

from sepa_edge_appliance import broker_tls, devices, network, provisioning, trial
from sepa_edge_appliance.files import make_directory, remove, write

DATA = Path("/data")
BOOT = Path("/boot/efi")
TEMPLATE = Path(__file__).with_name("edge.toml")
CONSOLE = Path("/run/issue.d/sepa-edge.issue")


def main() -> None:
    """Run all steps in order. A failed step does not stop the others, because a box that serves can be repaired."""
    report: list[str] = []

    def tried(what: str, step: Callable[..., object], *arguments: object) -> None:
        try:
            step(*arguments)
        except provisioning.ProvisioningRefused as refused:
            report.append(f"{what}: not applied: {refused}")
        except Exception as error:  # noqa: BLE001  the gateway has to start after any error
            traceback.print_exc()
            report.append(f"{what}: {type(error).__name__}: {error}")

    tried("update", lambda: report.extend(line for line in [trial.end()] if line))
    tried("update", trial.begin)
    tried("settings", settings)
    if not trial.LOST.exists():  # else its secrets would be cleared, and lost at the next start
        tried("provision.toml", provision)
    tried("network", network.enter)
    name = (DATA / "system/hostname").read_text().strip()
    tried("mappings", mappings, report)
    tried("certificate", certificate, name)
    tried("console", console, name, report)


def settings() -> None:
    """Write the initial settings, and the password by which the broker knows the gateway."""
    file = DATA / "settings/edge.toml"
    make_directory(file.parent, "root", 0o755)
    if not file.exists():
        write(file, TEMPLATE.read_text(), "sepa-edge", 0o640)
    password = DATA / "secrets/mqtt-password"
    if not password.exists():
        write(password, secrets.token_urlsafe(32) + "\n", "root", 0o600)
    if devices.GATEWAY not in devices.names():
        devices.let_in(devices.GATEWAY, password.read_text().strip())


def provision() -> None:
    """Apply provision.toml, and remove its secrets."""
    file = BOOT / "provision.toml"
    provisioning.finish_clearing(file)
    wanted = provisioning.read(file)
    # Steps that can still refuse the file come first, because no part of a refused file may apply.
    known = devices.names()
    for device, password in wanted.devices:
        if password == provisioning.CLEARED and device not in known:
            again = "write it again, or remove the device"
            raise provisioning.ProvisioningRefused(
                f"device: the password of {device} is no longer stored here; {again}"
            )
    if wanted.wifi is not None:
        network.supplicant(wanted.wifi)
    if wanted.history is not None:
        history(wanted.history)
    if wanted.wifi is not None:
        network.wireless(wanted.wifi)
    if wanted.network is not None:
        network.wired(wanted.network)
    for device, password in wanted.devices:
        if password != provisioning.CLEARED:
            devices.let_in(device, password)
    if wanted.hostname:
        write(DATA / "system/hostname", wanted.hostname + "\n", "root", 0o644)
        subprocess.run(["hostname", wanted.hostname], check=True)
    login(wanted.keys)
    provisioning.clear(file)


def history(wanted: provisioning.HistoryAddress) -> None:
    """Write where the gateway ships observations to, as variables of its service, which override its settings file."""
    variables = DATA / "settings/history.env"
    token = DATA / "secrets/history-token"
    if not wanted.url:
        remove(variables)
        remove(token)
        return
    if wanted.token == provisioning.CLEARED and not token.exists():
        raise provisioning.ProvisioningRefused("history: the token is no longer stored here; write it again")
    lines = [f"EDGE__OFFLOAD__TO={wanted.url}"]
    lines += ["EDGE__OFFLOAD__TOKEN_FILE=/run/credentials/edge.service/secrets_history-token"]
    authority = BOOT / "history-ca.pem"
    if authority.exists():
        content = authority.read_bytes()
        if b"-----BEGIN CERTIFICATE-----" not in content:
            raise provisioning.ProvisioningRefused("history-ca.pem is not a certificate in PEM format")
        write(DATA / "settings/history-ca.pem", content, "root", 0o644)
        lines += [f"EDGE__OFFLOAD__CA_FILE={DATA}/settings/history-ca.pem"]
    if wanted.token != provisioning.CLEARED:
        write(token, wanted.token + "\n", "root", 0o600)
    write(variables, "\n".join([*lines, ""]), "root", 0o644)


def login(keys: tuple[str, ...] | None) -> None:
    """Write the owner's SSH keys. An empty list disables logins; without a list the keys stay as they are."""
    directory = DATA / "ssh"
    make_directory(directory, "root", 0o700)
    if keys:
        write(directory / "authorized_keys", "\n".join(keys) + "\n", "root", 0o600)
    elif keys is not None:
        remove(directory / "authorized_keys")
    key = directory / "ssh_host_ed25519_key"
    if (directory / "authorized_keys").exists() and not key.exists():
        host_key(key)


def host_key(key: Path) -> None:
    """Make the host key. The public part is written first, so that an existing private key is always complete."""
    with tempfile.TemporaryDirectory(dir=key.parent) as directory:
        draft = Path(directory) / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(draft)], check=True)
        write(key.with_suffix(".pub"), draft.with_suffix(".pub").read_bytes(), "root", 0o644)
        write(key, draft.read_bytes(), "root", 0o600)


def mappings(report: list[str]) -> None:
    """Copy the owner's mapping files from the boot partition."""
    here = DATA / "sepa-edge/mappings"
    for file in sorted((BOOT / "mappings").glob("*.toml")):
        if file.name.startswith(".") or not file.is_file():
            continue  # files that other operating systems create
        content = file.read_bytes()
        try:
            tomllib.loads(content.decode())
        except ValueError as error:
            report.append(f"mappings/{file.name}: not copied: {error}")
            continue
        make_directory(here, "sepa-edge", 0o700)
        write(here / file.name, content, "sepa-edge", 0o600)


def edge(*arguments: str) -> str:
    """Run `edge` as the gateway's user, and return its output."""
    command = ["runuser", "-u", "sepa-edge", "--", "/usr/bin/edge", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def certificate(name: str) -> None:
    """Make an authority of this box alone and a certificate for its names, and copy the certificate for the broker."""
    data, tls = DATA / "sepa-edge", DATA / "sepa-edge/tls"
    shutil.chown(data, "sepa-edge", "sepa-edge")
    data.chmod(0o700)
    if not (tls / "ca.pem").exists() or f"{name}.local" not in re.split(r"[\s,]+", edge("cert", "show")):
        edge("cert", "init", name, f"{name}.local")
    broker_tls.copy()


def code() -> str:
    """Return the code that registers the first client, or "" after its use."""
    file = DATA / "secrets/enrolment"
    states = [line.split()[1] for line in edge("clients", "list").splitlines() if line.split()[:1] == ["operator"]]
    if states not in ([], ["invited"]):
        remove(file)
        return ""
    if not states or not file.exists():
        rights = [word for action in ("administer", "query", "update", "subscribe") for word in ("--action", action)]
        # Without a hardware clock, the box may have the date of another year until it has the time from the network.
        write(file, edge("clients", "invite", "operator", "--for", "3650d", *rights), "root", 0o600)
    return file.read_text().strip()


def console(name: str, report: list[str]) -> None:
    """Write the text above the login: address of the page, code, fingerprint of the authority, and failures."""
    lines = ["", f"  sepa-edge gateway {name}", "", f"  page       https://{name}.local:8443/"]
    try:
        if not trial.LOST.exists() and (first := code()):
            lines.append(f"  code       {first}   registers the first client, as operator")
        lines.append(f"  authority  SHA-256 {fingerprint()}")
    except (OSError, subprocess.SubprocessError) as error:
        report.append(f"code: {error}")
    lines += [f"  {line}" for line in report]
    lines += ["", ""]
    CONSOLE.write_text("\n".join(lines))
    # Also immediately, for a person who watches the start.
    Path("/dev/console").write_text("\n".join(lines))


def fingerprint() -> str:
    """Return the fingerprint of the box's authority."""
    shown = subprocess.run(
        ["openssl", "x509", "-in", DATA / "sepa-edge/tls/ca.pem", "-noout", "-fingerprint", "-sha256"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return shown.partition("=")[2].strip()


if __name__ == "__main__":
    main()
