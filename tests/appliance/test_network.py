"""The network configuration of an appliance, parsed by the programs that use it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from sepa_edge_appliance import network, provisioning

from tests.appliance.appliance import own


@pytest.fixture(autouse=True)
def box(tmp_path, monkeypatch):
    monkeypatch.setattr(network, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(network, "RUN", tmp_path / "run")
    network.KEPT.mkdir()
    own(monkeypatch)


def test_a_fixed_address_and_back():
    network.wired(provisioning.Network("192.0.2.7/24", "192.0.2.1", ("192.0.2.1", "2001:db8::1")))
    network.enter()
    text = (network.RUN / "50-wired.network").read_text()
    assert "Address=192.0.2.7/24\nGateway=192.0.2.1\nDNS=192.0.2.1\nDNS=2001:db8::1\n" in text
    network.wired(provisioning.Network())
    assert not list(network.KEPT.iterdir())


@pytest.mark.parametrize(("name", "password"), [("Café", 'at "home" }\\'), ('"', "x" * 63), ("open", "")])
def test_the_name_of_a_wireless_network_is_never_a_setting(name, password):
    network.wireless(provisioning.Wifi(name, password, "DE"))
    file = network.KEPT / "wpa_supplicant.conf"
    assert file.stat().st_mode & 0o077 == 0
    lines = file.read_text().splitlines()
    assert f"\tssid={name.encode().hex()}" in lines
    assert (f'\tpsk="{password}"' in lines) == bool(password)


def test_a_password_that_was_cleared_is_that_of_before():
    network.wireless(provisioning.Wifi("home", "open sesame", "DE"))
    network.wireless(provisioning.Wifi("home", provisioning.CLEARED, "AT"))
    text = (network.KEPT / "wpa_supplicant.conf").read_text()
    assert '\tpsk="open sesame"' in text
    assert "country=AT" in text
    with pytest.raises(provisioning.ProvisioningRefused, match="write it again"):
        network.wireless(provisioning.Wifi("work", provisioning.CLEARED, "DE"))


@pytest.mark.integration
def test_wpa_supplicant_accepts_the_configuration(tmp_path):
    program = shutil.which("wpa_supplicant", path="/usr/sbin:/sbin:/usr/bin")
    if program is None:
        pytest.skip("wpa_supplicant is not here; install the package wpasupplicant")
    network.wireless(provisioning.Wifi("Café", 'at "home" }\\', "DE"))
    # There is no such interface: the program ends after it has read its file.
    words = [program, "-d", "-i", "none0", "-D", "wired", "-c", str(network.KEPT / "wpa_supplicant.conf")]
    reported = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout
    assert "Failed to read or parse configuration" not in reported
    assert "Reading configuration file" in reported
