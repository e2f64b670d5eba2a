"""The provisioning file that the owner writes on the boot partition."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sepa_edge_appliance import provisioning

from tests.support.power_cut import build, power_cuts

ROOT = Path(__file__).parents[2] / "images"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBoot me@here"


def read(tmp_path: Path, text: str):
    (tmp_path / "provision.toml").write_text(text)
    return provisioning.read(tmp_path / "provision.toml")


def test_the_shipped_file_requests_nothing():
    assert provisioning.read(ROOT / "boot" / "provision.toml") == provisioning.Wanted()


def test_a_missing_file_requests_nothing(tmp_path):
    assert provisioning.read(tmp_path / "provision.toml") == provisioning.Wanted()


def test_every_key_is_applied(tmp_path):
    wanted = read(
        tmp_path,
        f"""
        hostname = "edge-hall"
        [[device]]
        name = "kitchen"
        password = 'a "word"'
        [ssh]
        authorized_keys = ["{KEY}"]
        [network]
        address = "192.0.2.7/24"
        gateway = "192.0.2.1"
        dns = ["192.0.2.1", "2001:db8::1"]
        [wifi]
        name = "Café"
        password = "at \\"home\\""
        country = "DE"
        [history]
        url = "https://history.example:8444"
        token = "seven"
        """,
    )
    assert wanted == provisioning.Wanted(
        "edge-hall",
        (("kitchen", 'a "word"'),),
        (KEY,),
        provisioning.Network("192.0.2.7/24", "192.0.2.1", ("192.0.2.1", "2001:db8::1")),
        provisioning.Wifi("Café", 'at "home"', "DE"),
        provisioning.HistoryAddress("https://history.example:8444", "seven"),
    )
    provisioning.clear(tmp_path / "provision.toml")
    after = provisioning.read(tmp_path / "provision.toml")
    assert after.devices == (("kitchen", provisioning.CLEARED),)
    assert (after.wifi.password, after.history.token) == (provisioning.CLEARED, provisioning.CLEARED)
    assert after.network == wanted.network


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hostname = ", "cannot be read"),
        ('hostname = "Hall 1"', "is not a name"),
        ('hostnam = "hall"', "hostnam is not known"),
        ("[[device]]\npassword = 'x'", "device 1: name is missing"),
        ("[[device]]\nname = 'gateway'\npassword = 'x'", "device 1: name"),
        ("[[device]]\nname = 'a'", r"device 1 \(a\): password is missing"),
        ("device = 3", "device 1 is not a table"),
        ("[ssh]\nauthorized_keys = ['nonsense']", "list of public keys"),
        ("[ssh]\nauthorized_keys = 'nonsense'", "list of public keys"),
        ("hostname = 0", "is not a name"),
        ("[[device]]\nname = 'tele'\npassword = 'x'", "reserved"),
        ("[[device]]\nname = '-D'\npassword = 'x'", "invalid"),
        ('[[device]]\nname = "a"\npassword = "b\\nc"', "cannot be printed"),
        ("[[device]]\nname = 'a'\npasword = 'x'", "pasword is not known"),
        ("[ssh]\nauthorised_keys = []", "authorised_keys is not known"),
        ("[network]\naddress = 7", "is not an address"),
        ("[network]\naddress = '192.0.2.7/24'\ndns = [true]", "is not an address"),
        ('[network]\naddress = "192.0.2.7/24"\ngateway = "fe80::1%x\\n[Route]"', "is not an address"),
        ("network = 3", "network is not a table"),
        ("[network]\naddres = '192.0.2.7/24'", "addres is not known; valid names are address, dns, gateway"),
        ("[network]\naddress = '192.0.2.7'", 'write "192.0.2.7/24"'),
        ("[network]\naddress = '192.0.2.700/24'", "192.0.2.700"),
        ("[network]\ngateway = '192.0.2.1'", "address = "),
        ("[wifi]\nname = 'a'\npassword = 'short'\ncountry = 'DE'", "8 to 63"),
        ("[wifi]\nname = 'a'\npassword = 'long enough'", "country is missing"),
        ("[wifi]\npassword = 'long enough'\ncountry = 'DE'", "name is missing"),
        ("[history]\nurl = 'ftp://a'\ntoken = 'x'", "must be an https URL"),
        ("[history]\nurl = 'https://a'", "token is missing"),
        ('[[device]]\nname = "a"\npassword = """\nx"""', "on a line of its own"),
        ("device = [{ name = 'a', password = 'x' }]", "on a line of its own"),
        ("[wifi]\nname = 'a'\n'password' = 'long enough'\ncountry = 'DE'", "on a line of its own"),
    ],
)
def test_errors_are_reported_and_nothing_is_applied(tmp_path, text, reason):
    with pytest.raises(provisioning.ProvisioningRefused, match=reason):
        read(tmp_path, text)


def test_secrets_are_cleared_over_the_whole_length_and_not_applied_again(tmp_path):
    file = tmp_path / "provision.toml"
    text = f'# mine\n[[device]]\nname = "kitchen"\npassword = \'open sesame\'\n[ssh]\nauthorized_keys = ["{KEY}"]\n'
    read(tmp_path, text)
    provisioning.clear(file)
    assert "sesame" not in file.read_text()
    assert file.read_text().startswith("# mine\n[[device]]\n")
    assert provisioning.read(file) == provisioning.Wanted(devices=(("kitchen", provisioning.CLEARED),), keys=(KEY,))
    before = file.read_bytes()
    provisioning.clear(file)
    assert file.read_bytes() == before


def test_secrets_that_are_commented_out_are_cleared_too_and_examples_are_not(tmp_path):
    read(tmp_path, '# [wifi]\n# password = "open sesame"\n#token = \'seven\'\n# password = "..."\n')
    provisioning.clear(tmp_path / "provision.toml")
    text = (tmp_path / "provision.toml").read_text()
    assert "sesame" not in text
    assert "seven" not in text
    assert '# password = "..."\n' in text


def test_a_file_without_the_key_differs_from_an_empty_list_of_keys(tmp_path):
    assert read(tmp_path, "[ssh]\nauthorized_keys = []").keys == ()
    assert read(tmp_path, "[ssh]\n").keys is None


def test_files_written_by_other_systems_are_read(tmp_path):
    text = '\ufeffhostname = "hall"\r\n[[device]]\r\nname = "a"\r\npassword = "secret"\r\n'
    (tmp_path / "provision.toml").write_bytes(text.encode())
    assert provisioning.read(tmp_path / "provision.toml").devices == (("a", "secret"),)
    provisioning.clear(tmp_path / "provision.toml")
    assert b"secret" not in (tmp_path / "provision.toml").read_bytes()
    assert len((tmp_path / "provision.toml").read_bytes()) >= len(text.encode())


def test_without_a_password_there_is_nothing_to_clear(tmp_path):
    wanted = read(tmp_path, '[wifi]\nname = "a"\npassword = ""\ncountry = "DE"\n')
    provisioning.clear(tmp_path / "provision.toml")
    assert provisioning.read(tmp_path / "provision.toml") == wanted


@given(word=st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF), min_size=1))
def test_no_password_is_left(tmp_path_factory, word):
    file = tmp_path_factory.mktemp("boot") / "provision.toml"
    # TOML accepts all of these characters as they are, except this one
    written = json.dumps(word).replace("\x7f", "\\u007f")
    file.write_text(f'[[device]]\nname = "a"\npassword={written}\n')
    provisioning.clear(file)
    assert tomllib.loads(file.read_text())["device"] == [{"name": "a", "password": provisioning.CLEARED}]


SECTOR = 512


@pytest.mark.parametrize("password", ["p", "open sesame, and some more of it"])
def test_a_power_cut_while_secrets_are_cleared_leaves_none(tmp_path, password):
    """Sectors of the old and of the new text may be mixed. The next start erases all of it."""
    file = tmp_path / "provision.toml"
    device = f'[[device]]\nname = "device"\npassword = "{password}"\n# {"x" * 40}\n'
    text = (device * 40).encode()
    file.write_bytes(text)
    finished = [dict(left) for left in power_cuts(tmp_path, lambda: provisioning.clear(file))]
    blank = file.read_bytes()
    assert len(text) > 4 * SECTOR
    torn = [whole for whole in finished if whole.get("provision.toml") == blank and "provision.cleared" in whole]
    assert torn, "the copy is there while the file is written over"
    sectors = range(0, max(len(blank), len(text)), SECTOR)
    for chosen in [*(2**n - 1 for n in range(len(sectors))), 0b10101, 0b1010]:
        pieces = [(blank if chosen >> n & 1 else text)[begin : begin + SECTOR] for n, begin in enumerate(sectors)]
        build(tmp_path, (("provision.cleared", blank), ("provision.toml", b"".join(pieces))))
        start_again(file)
        assert provisioning.CLEARED in file.read_text()
        assert f'"{password}"' not in file.read_text()
    for whole in finished:
        build(tmp_path, tuple(sorted(whole.items())))
        start_again(file)
        assert file.read_bytes() == blank
        assert [path.name for path in tmp_path.iterdir()] == ["provision.toml"]


def start_again(file: Path) -> None:
    """Process the file as the next start does."""
    provisioning.finish_clearing(file)
    provisioning.read(file)
    provisioning.clear(file)


def test_later_changes_of_the_owner_are_not_overwritten(tmp_path):
    file = tmp_path / "provision.toml"
    file.with_suffix(".cleared").write_text('hostname = "edge-hall"\n')
    file.write_text('hostname = "edge-kitchen"\n')
    provisioning.finish_clearing(file)
    assert provisioning.read(file).hostname == "edge-kitchen"
    assert [path.name for path in tmp_path.iterdir()] == ["provision.toml"]
