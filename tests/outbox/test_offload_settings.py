"""The settings of shipping: accepted values, and error messages."""

import pytest

from edge.config import ConfigurationError, load


@pytest.fixture
def loaded(tmp_path):
    def loaded(**keys):
        file = tmp_path / "edge.toml"
        lines = [
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in keys.items()
        ]
        file.write_text("\n".join(["[offload]", *lines]))
        return load(file, environ={}).settings.offload

    return loaded


@pytest.fixture
def refused(loaded):
    def refused(**keys):
        with pytest.raises(ConfigurationError) as caught:
            loaded(**keys)
        (line,) = caught.value.problems
        return line

    return refused


def test_shipping_is_off_by_default(loaded):
    assert (loaded().to, loaded().over_http) == ("", False)


def test_a_directory_is_where_the_settings_file_says(loaded, tmp_path):
    assert loaded(to="landing").to == str(tmp_path / "landing")
    assert (loaded(to="/mnt/a b").to, loaded(to="/mnt/a b").over_http) == ("/mnt/a b", False)


@pytest.mark.parametrize("url", ["https://history.example.org:8500/", "http://127.0.0.1:8500", "http://localhost/a"])
def test_a_valid_address_is_accepted(loaded, url):
    assert (loaded(to=url, token="t").to, loaded(to=url).over_http) == (url, True)


@pytest.mark.parametrize("url", ["http://history.example.org", "ftp://a/b", "https://", "https://user:word@a"])
def test_invalid_or_unencrypted_address_is_refused(refused, url):
    assert "offload.to" in refused(to=url)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"to": "https://a", "token": "t", "token_file": "f"}, "offload.token_file"),
        ({"to": "/landing", "token": "t"}, "offload.to"),
        ({"ca_file": "f"}, "offload.to"),
        ({"retry_min": 10, "retry_max": 5}, "offload.retry_max"),
        ({"segment_rows": 0}, "offload.segment_rows"),
        ({"every": 0}, "offload.every"),
    ],
)
def test_contradicting_settings_are_reported(refused, keys, key):
    assert key in refused(**keys)
