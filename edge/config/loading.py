"""Loading of settings: defaults, then a TOML file, then the environment, then the command line."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import ValidationError

from edge.config import former_keys
from edge.config.models import Settings
from edge.config.problem_messages import explain, is_section, unknown_variable
from edge.config.profiles import PROFILES
from edge.gates.settings import SessionsSettings
from edge.protocol.addresses import is_loopback
from edge.protocol.errors import EdgeError

PREFIX: Final = "EDGE__"
"""Prefix of the environment variables that are settings: `EDGE__SECTION__KEY`."""

GATES: Final = ("http", "ws", "mqtt_gate", "coap")
"""Sections that [sessions] completes."""

_CREDENTIALS: Final = Path("/run/credentials")


class ConfigurationError(EdgeError):
    """The settings cannot be used. `problems` has one line for each problem; `description` has all of them."""

    error: ClassVar[str] = "invalid_configuration"
    status_code: ClassVar[int] = 500

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Loaded:
    """Settings in effect, and where they come from."""

    settings: Settings
    sources: Mapping[str, str]
    """Source of each key that was set: the name of a file, a variable or an option."""
    derived: Mapping[str, str]
    """Source of each key whose value comes from another key: the profile, or one of [sessions]."""
    warnings: tuple[str, ...] = ()
    """A line for each key of an earlier version."""

    @property
    def origins(self) -> dict[str, str]:
        """Source of each key that does not have its default."""
        return {**self.derived, **self.sources}


def load(file: Path | None = None, *, environ: Mapping[str, str] = os.environ, data_dir: Path | None = None) -> Loaded:
    """Return the settings in effect. `environ` overrides `file`; `data_dir` (from the command line) overrides both.

    Raises `ConfigurationError` with every unknown key and every invalid value of all sources.
    """
    problems: list[str] = []
    sources: dict[str, str] = {}
    from_file = _read_file(file) if file is not None else {}
    warnings = former_keys.update(from_file, str(file))
    settings = Settings()
    try:
        base = file.absolute().parent if file is not None else Path.cwd()
        # Strict validation from JSON accepts lists for tuples and texts for paths, but no text for a number.
        text = json.dumps(from_file, default=str)
        settings = Settings.model_validate_json(text, strict=True, context={"base": base})
        sources.update(dict.fromkeys(_set_keys(settings), str(file)))
    except ValidationError as error:
        problems += [f"{file}: {line}" for line in explain(error)]
    variables, unknown, former = _read_environment(environ)
    problems += unknown
    warnings += former
    try:
        # Variables are texts, so this validation is not strict, unlike that of the file.
        wanted = Settings.model_validate(_nested(variables, environ), context={"base": Path.cwd()})
        settings = _overlaid(settings, wanted)
        sources.update({key: f"${variables[key]}" for key in _set_keys(wanted)})
    except ValidationError as error:
        problems += explain(error, variables)
    if data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir.expanduser().absolute()})
        sources["data_dir"] = "--data-dir"
    settings, derived = _completed(settings, sources)
    # A rejected source is missing in `settings`, so contradictions between keys could be false.
    if not problems:
        problems = [
            f"{sources.get(key) or derived.get(key) or 'defaults'}: {key}: {fault}"
            for key, fault in _problems(settings)
        ]
    if problems:
        raise ConfigurationError(*problems)
    return Loaded(settings, sources, derived, tuple(warnings))


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        where = f"{file}:{found[1]}:{found[2]}" if found else str(file)
        text = re.sub(r" \(at .*\)$", "", str(error))
        raise ConfigurationError(f"{where}: not TOML: {text}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--config: {_unreadable(file, error)}") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise ConfigurationError(f"{file}: not TOML: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"--config: {_unreadable(file, error)}") from None


def _unreadable(file: Path, error: OSError | UnicodeDecodeError) -> str:
    reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
    return f"{file} cannot be read: {reason}"


def _read_environment(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the variable of each dotted key, a message for each unknown variable, and one for each former key."""
    variables: dict[str, str] = {}
    unknown: list[str] = []
    former: list[str] = []
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        key = ".".join(variable.removeprefix(PREFIX).lower().split("__"))
        if key in former_keys.RENAMED:
            former.append(f"{variable}: {former_keys.warning(key)}")
            variables.setdefault(former_keys.RENAMED[key], variable)
        elif key in former_keys.REMOVED or key in former_keys.REPLACED:
            former.append(f"{variable}: {former_keys.warning(key)}")
        elif problem := unknown_variable(variable, key):
            unknown.append(problem)
        else:
            variables[key] = variable
    return variables, unknown, former


def _nested(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, variable in variables.items():
        section, _, name = key.rpartition(".")
        table = tree.setdefault(section, {}) if section else tree
        table[name] = _value(key, environ[variable])
    return tree


def _value(key: str, text: str) -> object:
    """Return the text of a variable. For a list, parse a JSON array or comma-separated names."""
    section, _, name = key.rpartition(".")
    model = getattr(Settings(), section) if section else Settings()
    if not isinstance(getattr(model, name), tuple):
        return text
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError:
            # Validation reports the text with the name of its variable.
            return text
    return [part.strip() for part in text.split(",") if part.strip()]


def _set_keys(settings: Settings) -> list[str]:
    keys = []
    for name in settings.model_fields_set:
        if is_section(name):
            keys += [f"{name}.{key}" for key in getattr(settings, name).model_fields_set]
        else:
            keys.append(name)
    return keys


def _completed(settings: Settings, sources: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
    """Return the settings with the values of the profile and of [sessions], and the sources of these.

    The most specific one wins: a key that is set, then the key of [sessions], then the profile.
    """
    values: dict[str, object] = dict(PROFILES[settings.profile])
    derived = dict.fromkeys(values, f'profile "{settings.profile}"')
    for name in SessionsSettings.model_fields:
        value = getattr(settings.sessions, name)
        for gate in GATES if value is not None else ():
            if name in type(getattr(settings, gate)).model_fields:
                values[f"{gate}.{name}"], derived[f"{gate}.{name}"] = value, f"sessions.{name}"
    changed: dict[str, dict[str, object]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        if key in sources:
            del derived[key]
        else:
            changed.setdefault(section, {})[name] = value
    update = {section: getattr(settings, section).model_copy(update=keys) for section, keys in changed.items()}
    return settings.model_copy(update=update), derived


def _overlaid(settings: Settings, wanted: Settings) -> Settings:
    update: dict[str, object] = {}
    for name in wanted.model_fields_set:
        value = getattr(wanted, name)
        if is_section(name):
            changed = {key: getattr(value, key) for key in value.model_fields_set}
            value = getattr(settings, name).model_copy(update=changed)
        update[name] = value
    return settings.model_copy(update=update)


def _only_for_service(file: Path) -> bool:
    """Return whether the file is a systemd credential that this process cannot read.

    systemd shows the credentials of a service to the service alone (systemd.exec(5)), not to commands such as `edge
    config check`.
    """
    return file.is_relative_to(_CREDENTIALS) and "CREDENTIALS_DIRECTORY" not in os.environ


def _problems(settings: Settings) -> list[tuple[str, str]]:
    """Return the problems that a single key does not show: contradictions between keys, unreadable files."""
    mqtt = settings.mqtt
    faults = []
    if mqtt.reconnect_max < mqtt.reconnect_min:
        faults.append(("mqtt.reconnect_max", f"must not be less than mqtt.reconnect_min ({mqtt.reconnect_min:g} s)"))
    if mqtt.password and mqtt.password_file:
        faults.append(("mqtt.password_file", "set either mqtt.password or mqtt.password_file, not both"))
    if (mqtt.password or mqtt.password_file) and not mqtt.username:
        faults.append(("mqtt.username", "a password without a user name; set mqtt.username"))
    if mqtt.key_file and not mqtt.cert_file:
        faults.append(("mqtt.key_file", "a private key without a certificate; set mqtt.cert_file"))
    if settings.security.key_file and not settings.security.cert_file:
        faults.append(("security.key_file", "a private key without a certificate; set security.cert_file"))
    if not (settings.security.enabled or is_loopback(settings.coap.host)):
        faults.append(
            (
                "coap.host",
                f'"{settings.coap.host}" is not a loopback address: set security.enabled, so that OSCORE protects '
                'requests from other machines, or keep "127.0.0.1"',
            )
        )
    issuer = settings.issuer
    if issuer.url and bool(issuer.jwks_url) == bool(issuer.jwks_file):
        faults.append(("issuer.url", "its keys are missing: set issuer.jwks_url or issuer.jwks_file, one of them"))
    if not issuer.url and (issuer.jwks_url or issuer.jwks_file):
        faults.append(("issuer.url", "keys without an issuer; set issuer.url to the iss of the tokens"))
    for name in ("password_file", "ca_file", "cert_file", "key_file"):
        file: Path | None = getattr(mqtt, name)
        # `edge config check` cannot read the service's credentials, but the service can.
        if file is None or _only_for_service(file):
            continue
        try:
            # Report an unreadable file at the start, not at the first connection.
            file.open("rb").close()
        except OSError as error:
            faults.append((f"mqtt.{name}", _unreadable(file, error)))
    offload = settings.offload
    if offload.retry_max < offload.retry_min:
        least = offload.retry_min
        faults.append(("offload.retry_max", f"must not be less than offload.retry_min ({least:g} s)"))
    if offload.token and offload.token_file:
        faults.append(("offload.token_file", "set either offload.token or offload.token_file, not both"))
    if (offload.token or offload.token_file or offload.ca_file) and not offload.over_http:
        faults.append(("offload.to", "a token, or authorities, for a landing zone that is not an https address"))
    ports = [("http.port", settings.http.port), ("ws.port", settings.ws.port)]
    secure = ["https_port", "wss_port"]
    if settings.mqtt.enabled and not settings.mqtt.broker:
        ports.append(("mqtt.port", settings.mqtt.port))
        secure.append("mqtts_port")
    if settings.security.enabled:
        ports += [(f"security.{name}", getattr(settings.security, name)) for name in secure]
    for index, (key, port) in enumerate(ports):
        for other, taken in ports[:index]:
            if port and port == taken:
                faults.append((key, f"{port} is {other} as well; give each its own port, or 0 for any free one"))
    return faults
