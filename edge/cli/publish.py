"""`edge publish`: one reading to the gateway's MQTT broker."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import EXIT_CODES, Failure, misused, refused, unreachable
from edge.cli.http import send
from edge.cli.locate import GatewayAddresses, data_dir_option, locate
from edge.cli.source import read_payload
from edge.cli.token import TOKEN, token, unencrypted
from edge.command_line import PAYLOAD
from edge.protocol.addresses import keeps_secrets

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_PASSWORD: Final = "EDGE_MQTT_PASSWORD"  # noqa: S105 - the name of a variable
_CLIENTS: Final = "sepa/"
"""Topics of the MQTT gate, whose messages are not readings."""
_USERNAME: Final = "edge"
"""Default user name. MQTT 3.1.1 (3.1.2.9) allows no password without a user name; a gateway ignores it."""


@click.command(epilog=EXIT_CODES)
@click.argument("topic")
@click.argument("payload", type=PAYLOAD)
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="Quality of service.")
@click.option("--retain", is_flag=True, help="Retain it at the broker as the topic's last value.")
@click.option(
    "--mqtt", "url", envvar="EDGE_MQTT", metavar="URL", help="Broker, e.g. mqtt://127.0.0.1:1883.  [env: EDGE_MQTT]"
)
@click.option(
    "--username", metavar="NAME", help=f"User name at the broker. {_PASSWORD} holds the password, {TOKEN} a token."
)
@data_dir_option
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="Seconds to wait for the broker."
)
def publish(
    topic: str,
    payload: str,
    qos: int,
    retain: bool,
    url: str | None,
    username: str | None,
    data_dir: Path | None,
    timeout: float,
) -> None:
    """Publish one reading to the gateway's MQTT broker.

    PAYLOAD is the payload itself, @FILE a file that contains it, - standard input. Standard error says if the gateway
    has no mapping for the topic, or cannot read a value.

    \b
    edge publish senml/kitchen '[{"n":"kitchen/temperature","u":"Cel","v":21.5}]'
    """
    gateway = None if url is not None else locate(data_dir)
    address = gateway.get("mqtt") if gateway is not None else str(url)
    # MQTT 3.1.1 (3.3.2.1): the topic of a message has no wildcards. Checked before anything is sent.
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise misused("TOPIC must be the name of one topic, without + and #")
    message = read_payload(payload)
    _send(address, topic, message, qos, retain, username, timeout)
    if gateway is not None and message and not topic.startswith(_CLIENTS):
        _say_what_is_lost(gateway, topic, message, timeout)


def _say_what_is_lost(gateway: GatewayAddresses, topic: str, payload: bytes, timeout: float) -> None:
    """Print the values that the gateway cannot read. Prints nothing if it does not say so, as without the right to."""
    request = json.dumps({"topic": topic, "hex": payload.hex()}).encode()
    try:
        url = gateway.get("http").rstrip("/") + "/api/mapping-test"
        answer = send("POST", url, request, {"Content-Type": "application/json"}, timeout).json()
    except Failure:
        return
    if not answer.get("matched", True):
        reason = f"published, but no mapping matches {printable(topic)}; make one with: edge mapping new TOPIC PAYLOAD"
        click.echo(f"edge: {reason}", err=True)
    for problem in answer.get("problems", []):
        click.echo(f"edge: published, but {printable(problem['what'])}: {printable(problem['reason'])}", err=True)


def _send(
    address: str, topic: str, payload: bytes, qos: int, retain: bool, username: str | None, timeout: float
) -> None:
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.reasoncodes import ReasonCode

    host, port, secure = _parts(address)
    # A single attempt: a command must not try again forever behind a wrong password.
    client = paho.Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
    client.connect_timeout = timeout
    refusals: list[str] = []
    answered = threading.Event()

    def on_connect(
        client: paho.Client, _userdata: object, _flags: object, reason: ReasonCode, _properties: object
    ) -> None:
        if reason.is_failure:
            refusals.append(str(reason))
            client.disconnect()
        answered.set()

    client.on_connect = on_connect
    # A broker may also close the connection without an answer.
    client.on_disconnect = lambda *_: answered.set()
    password = _password(address)
    if username is not None or password is not None:
        client.username_pw_set(username or _USERNAME, password)
    if secure:
        client.tls_set()
    try:
        client.connect(host, port)
        client.loop_start()
        # A message that is published before the broker refuses the connection would wait until the timeout.
        answered.wait(timeout)
        arrived = False
        if client.is_connected():
            message = client.publish(topic, payload, qos=qos, retain=retain)
            message.wait_for_publish(timeout)
            arrived = message.is_published()
    except OSError as error:
        raise unreachable(address, error) from None
    except (RuntimeError, ValueError) as error:
        if not refusals:
            raise refused(f"the broker at {address} did not accept it: {error}") from None
        arrived = False
    finally:
        client.disconnect()
        client.loop_stop()
    if refusals:
        raise refused(
            f"the broker at {address} refused the connection: {refusals[0]} (see --username and ${_PASSWORD}; "
            f"with a gateway as broker, a token: ${TOKEN})"
        )
    if not arrived:
        raise unreachable(address, f"no acknowledgement within {timeout:g} s")


def _password(address: str) -> str | None:
    """Return the password for the broker: the one in the environment, else the token.

    The token is sent only over an encrypted or local connection.
    """
    if password := os.environ.get(_PASSWORD):
        if not keeps_secrets(address):
            raise unencrypted(_PASSWORD, address)
        return password
    # Left out without an error, unlike the password: EDGE_TOKEN is for all commands, and this broker may need none.
    return token() if keeps_secrets(address) else None


def _parts(address: str) -> tuple[str, int, bool]:
    parts = urlsplit(address)
    try:
        if parts.scheme in _PORTS and parts.hostname:
            return parts.hostname, parts.port or _PORTS[parts.scheme], parts.scheme == "mqtts"
    except ValueError:
        pass
    raise misused(f'"{address}" is not the address of a broker such as mqtt://127.0.0.1:1883')
