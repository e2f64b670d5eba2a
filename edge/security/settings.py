"""Settings of authentication, access control and TLS."""

from __future__ import annotations

from edge.protocol.access import Action
from edge.section import Section, key
from edge.section_types import Host, IssuerAlgorithm, OptionalPath, Port, WebUrl


class SecuritySettings(Section):
    """Authentication with tokens, and ports with TLS."""

    enabled: bool = key(
        False,
        "Whether every request needs a token (OAuth 2.0, `edge clients`), and the secure ports are open.",
        basic=True,
    )
    host: Host = key("127.0.0.1", "Address of the secure ports, for example 0.0.0.0 for all networks.", basic=True)
    https_port: Port = key(8443, "TCP port of the HTTP gate with TLS. 0: any free port.")
    wss_port: Port = key(9443, "TCP port of the WebSocket gate with TLS. 0: any free port.")
    mqtts_port: Port = key(8883, "TCP port of the embedded MQTT broker with TLS. 0: any free port.")
    cert_file: OptionalPath = key(
        None,
        "PEM file with the gateway's certificate and its intermediate authorities. Empty: the one that `edge cert` "
        "makes.",
        basic=True,
    )
    key_file: OptionalPath = key(None, "PEM file with the private key of the certificate.", basic=True)
    token_lifetime: int = key(3600, "How long a token is valid.", unit="s", minimum=1, maximum=31_536_000)
    audience: str = key("sepa-edge", "Audience of the tokens (aud).")
    enrolment_file: OptionalPath = key(
        None,
        "File with an invitation code of `edge clients invite`, which the dashboard page shows for some time. Empty: "
        "it shows none.",
    )
    enrolment_shown: float = key(
        900.0,
        "How long after a start the dashboard page shows that code, to clients from a private network. 0: never.",
        unit="s",
        minimum=0,
        maximum=86_400,
    )
    key_rotation: float = key(
        2_592_000.0,
        "How long a key signs tokens before a new one replaces it.",
        unit="s",
        minimum=60,
        maximum=315_360_000,
    )


class IssuerSettings(Section):
    """An external authorization server whose tokens the gateway accepts with security.enabled, such as Keycloak."""

    url: WebUrl = key("", "Its issuer identifier, as in its tokens (iss). Empty: no external server.")
    jwks_url: WebUrl = key("", "URL of its keys (JWK Set): https, or http on this machine.")
    jwks_file: OptionalPath = key(None, "File with its keys (JWK Set), instead of jwks_url.")
    ca_file: OptionalPath = key(
        None, "PEM file with the certificate authorities that may sign its certificate. Empty: the system's."
    )
    audience: str = key("sepa-edge", "Required audience of its tokens (aud).")
    claim: str = key("sub", "Claim that names the client, for example azp or client_id.")
    algorithms: tuple[IssuerAlgorithm, ...] = key(("RS256", "ES256"), "Accepted signature algorithms of its tokens.")
    leeway: float = key(
        10.0, "Accepted difference between its clock and the gateway's.", unit="s", minimum=0, maximum=300
    )
    refresh: float = key(300.0, "Time between two downloads of its keys.", unit="s", minimum=30, maximum=86_400)
    keys_for: float = key(
        604_800.0,
        "How long the gateway uses downloaded keys while the server cannot be reached.",
        unit="s",
        minimum=60,
        maximum=315_360_000,
    )
    actions: tuple[Action, ...] = key(
        (),
        "Permissions of all its clients. Empty: only the clients that `edge clients allow --issuer` names have access.",
    )
    read: tuple[str, ...] = key(("all",), 'Graphs that all its clients may read: IRIs, "default", "all".')
    write: tuple[str, ...] = key(("all",), "Graphs that all its clients may change.")
