"""`edge clients oscore`: keys that protect the CoAP messages of a device (RFC 8613), in the formats of devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from edge.cli.config import config_option, data_dir_of_gateway
from edge.cli.security import opened

if TYPE_CHECKING:
    from edge.security.oscore import SharedContext


@click.command()
@click.argument("identity")
@click.option(
    "--form",
    type=click.Choice(["text", "libcoap", "aiocoap"]),
    default="text",
    show_default=True,
    help="Plain text; the file for `coap-client -E`; the secret.json of an aiocoap context, which needs "
    "`pip install 'aiocoap[oscore]'`: without it aiocoap sends unencrypted messages.",
)
@click.option("--end", is_flag=True, help="Delete the keys and create none.")
@config_option
@data_dir_of_gateway
def oscore(identity: str, form: str, end: bool, file: Path | None, data_dir: Path | None) -> None:
    """Create the keys with which a client protects its CoAP messages (OSCORE), and print them.

    The client must be allowed or registered. New keys replace the old ones at once. They are shown only once. A device
    that is set up again needs new keys, because it has lost its sequence number, and reuse would break the encryption.

    \b
    edge clients allow kitchen-sensor --action update --action query
    edge clients oscore kitchen-sensor --form libcoap > kitchen.conf
    coap-client -E kitchen.conf,kitchen.seq -m fetch -e 'ASK {}' coap://GATEWAY/query
    """
    with opened(file, data_dir) as security:
        if end:
            security.unshare(identity)
            click.echo(f"{identity} has no OSCORE keys any more")
            return
        context = security.share(identity)
    click.echo(_FORMS[form](context))


def as_text(context: SharedContext) -> str:
    """Return the keys as text for manual entry."""
    return "\n".join(
        (
            f"master secret        {context.secret.hex()}",
            f"master salt          {context.salt.hex()}",
            f"device's sender ID   {context.kid.hex()}",
            f"gateway's sender ID  {context.gateway_id.hex()}  (the device's recipient ID)",
            "ID context           none",
            "AEAD                 AES-CCM-16-64-128 (10)",
            "HKDF                 SHA-256 (-10)",
        )
    )


def as_libcoap(context: SharedContext) -> str:
    """Return the file of coap-oscore-conf(5)."""
    return "\n".join(
        (
            f'master_secret,hex,"{context.secret.hex()}"',
            f'master_salt,hex,"{context.salt.hex()}"',
            f'sender_id,hex,"{context.kid.hex()}"',
            f'recipient_id,hex,"{context.gateway_id.hex()}"',
            # Numbers of the IANA registry COSE Algorithms: AES-CCM-16-64-128, and HKDF with SHA-256. They are the
            # defaults of RFC 8613, section 3.2.
            "aead_alg,integer,10",
            "hkdf_alg,integer,-10",
        )
    )


def as_aiocoap(context: SharedContext) -> str:
    """Return the secret.json of an aiocoap context."""
    return json.dumps(
        {
            "sender-id_hex": context.kid.hex(),
            "recipient-id_hex": context.gateway_id.hex(),
            "secret_hex": context.secret.hex(),
            "salt_hex": context.salt.hex(),
            "algorithm": "AES-CCM-16-64-128",
            "kdf-hashfun": "sha256",
        },
        indent=2,
    )


_FORMS: Final[dict[str, Callable[[SharedContext], str]]] = {
    "text": as_text,
    "libcoap": as_libcoap,
    "aiocoap": as_aiocoap,
}
