"""Settings of who may come in."""

from __future__ import annotations

from edge.config.keys import Host, IssuerAlgorithm, OptionalPath, Port, WebUrl, key
from edge.config.section import Section
from edge.protocol.access import Action


class SecuritySettings(Section):
    """Who may come in: tokens, TLS."""

    enabled: bool = key(
        False, "Whether every request needs a token (OAuth 2.0, `edge clients`), and the secure ports are open."
    )
    host: Host = key("127.0.0.1", "Address of the secure ports, e.g. 0.0.0.0 for the whole network.")
    https_port: Port = key(8443, "TCP port of the HTTP gate with TLS. 0 is any free port.")
    wss_port: Port = key(9443, "TCP port of the WebSocket gate with TLS. 0 is any free port.")
    mqtts_port: Port = key(8883, "TCP port of the embedded MQTT broker with TLS. 0 is any free port.")
    cert_file: OptionalPath = key(
        None, "PEM file of the gateway's certificate, and those that signed it. Empty: one that `edge cert` makes."
    )
    key_file: OptionalPath = key(None, "PEM file of the certificate's private key.")
    token_lifetime: int = key(3600, "How long a token is valid.", unit="s", minimum=1, maximum=31_536_000)
    audience: str = key("sepa-edge", "Whom tokens are for (their aud).")
    enrolment_file: OptionalPath = key(
        None, "File with a code of `edge clients invite`, which the page shows for a while. Empty: it shows none."
    )
    enrolment_shown: float = key(
        900.0,
        "How long after a start the page shows that code, to who comes from a private network. 0: never.",
        unit="s",
        minimum=0,
        maximum=86_400,
    )
    key_rotation: float = key(
        2_592_000.0, "How long a key signs tokens; then there is a new one.", unit="s", minimum=60, maximum=315_360_000
    )


class IssuerSettings(Section):
    """Another authorisation server whose tokens count, where security.enabled is set (Keycloak, say)."""

    url: WebUrl = key("", "Its name, as it stands in its tokens (iss). Empty: there is none.")
    jwks_url: WebUrl = key("", "Where it publishes its keys: https, or http on this machine.")
    jwks_file: OptionalPath = key(None, "File with its keys (JWK Set), in place of jwks_url.")
    ca_file: OptionalPath = key(None, "PEM file of the authorities of its certificate. Empty: those of the machine.")
    audience: str = key("sepa-edge", "Whom its tokens must be for (their aud).")
    claim: str = key("sub", "The claim that names the client, e.g. azp or client_id.")
    algorithms: tuple[IssuerAlgorithm, ...] = key(("RS256", "ES256"), "How its tokens may be signed.")
    leeway: float = key(10.0, "By how much its clock may differ from ours.", unit="s", minimum=0, maximum=300)
    refresh: float = key(300.0, "Time between two fetches of its keys.", unit="s", minimum=30, maximum=86_400)
    keys_for: float = key(
        604_800.0,
        "How long its keys are used while it cannot be reached.",
        unit="s",
        minimum=60,
        maximum=315_360_000,
    )
    actions: tuple[Action, ...] = key(
        (), "What all its clients may do. Empty: those alone come in that `edge clients allow --issuer` named."
    )
    read: tuple[str, ...] = key(("all",), 'Graphs that all its clients may see: IRIs, "default", "all".')
    write: tuple[str, ...] = key(("all",), "Graphs that all its clients may change.")
