"""Write the owner's network settings for systemd-networkd and wpa_supplicant."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sepa_edge_appliance.files import remove, write
from sepa_edge_appliance.provisioning import CLEARED, Network, ProvisioningRefused, Wifi

KEPT = Path("/data/network")
"""Directory of the settings. Other *.network, *.netdev and *.link files in it apply as well (systemd.network(5))."""
SUPPLICANT = "wpa_supplicant.conf"
RUN = Path("/run/systemd/network")


def wired(wanted: Network) -> None:
    """Write the fixed address of the wired network; without one, remove the file, and the default (DHCP) applies."""
    file = KEPT / "50-wired.network"
    if not wanted.address:
        remove(file)
        return
    lines = ["# From provision.toml.", "[Match]", "Name=en* eth*", "", "[Network]", f"Address={wanted.address}"]
    lines += [f"Gateway={wanted.gateway}"] if wanted.gateway else []
    lines += [f"DNS={server}" for server in wanted.dns]
    write(file, "\n".join([*lines, "MulticastDNS=yes", ""]), "root", 0o644)


def wireless(wanted: Wifi) -> None:
    """Write the settings of the wireless network for the first radio. Raises `ProvisioningRefused`."""
    write(KEPT / SUPPLICANT, supplicant(wanted), "root", 0o600)


def supplicant(wanted: Wifi) -> str:
    """Return the configuration of wpa_supplicant. Raises `ProvisioningRefused`."""
    password = wanted.password
    if password == CLEARED:
        file = KEPT / SUPPLICANT
        before = file.read_text() if file.exists() else ""
        kept = re.search(r'^\tpsk="(.*)"$', before, re.MULTILINE)
        if kept is None or f"\tssid={wanted.name.encode().hex()}\n" not in before:
            raise ProvisioningRefused(f"wifi: the password of {wanted.name} is no longer stored here; write it again")
        password = kept[1]
    # Neither hexadecimal digits for the name nor quotes around the password can be misread as other settings.
    lines = ["# From provision.toml.", f"country={wanted.country}", "network={", f"\tssid={wanted.name.encode().hex()}"]
    if password:
        lines += ["\tkey_mgmt=WPA-PSK WPA-PSK-SHA256 SAE", "\tieee80211w=1", f'\tpsk="{password}"']
    else:
        lines += ["\tkey_mgmt=NONE"]
    return "\n".join([*lines, "}", ""])


def enter() -> None:
    """Copy the settings with permissions that systemd-networkd can read, before it starts."""
    RUN.mkdir(parents=True, exist_ok=True)
    for file in [*KEPT.glob("*.network"), *KEPT.glob("*.netdev"), *KEPT.glob("*.link")]:
        shutil.copyfile(file, RUN / file.name)
