"""`edge run`: the gateway process, and its welcome message."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from edge import __version__
from edge.cli.config import config_option, data_dir_of_gateway, load_settings
from edge.cli.exit_codes import REFUSED, Failure
from edge.command_line import OutputFailed
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.gateway import Gateway

_EXAMPLE_TOPIC: Final = "senml/kitchen"
_EXAMPLE_PAYLOAD: Final = '[{"n":"temperature","u":"Cel","v":21.5}]'
_EXAMPLE_QUERY: Final = (
    "SELECT ?observation ?value WHERE { ?observation <http://www.w3.org/ns/sosa/hasResult> ?result . "
    "?result <http://qudt.org/1.1/schema/qudt#numericValue> ?value }"
)

_CODES: Final = """\b
Exit codes:
  0  stopped by SIGTERM or Ctrl-C, everything is stored
  1  failed while starting, running or stopping: standard error says why; a restart may help
  2  wrong command line or settings: a restart does not help
"""


@click.command(epilog=_CODES)
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="HTTP port (http.port); 0: any free port.")
@click.option(
    "--broker", metavar="HOST[:PORT]", help="MQTT broker to use instead of the embedded one (mqtt.broker), or its URL."
)
@config_option
@data_dir_of_gateway
def run(port: int | None, broker: str | None, file: Path | None, data_dir: Path | None) -> None:
    """Run the gateway until SIGTERM or Ctrl-C.

    It needs no settings: an embedded MQTT broker (port 1883) accepts readings, HTTP (8000) SPARQL queries and updates,
    WebSocket (9000) subscriptions. When the gateway is ready, DATA_DIR/endpoints.json contains its addresses.
    """
    gc.disable()  # until the gateway is ready: imports leave no garbage, and its collection takes a fifth of their time
    options = {} if port is None else {"EDGE__HTTP__PORT": ("--port", str(port))}
    if broker is not None:
        options["EDGE__MQTT__BROKER"] = ("--broker", broker if "://" in broker else f"mqtt://{broker}")
    loaded = load_settings(file, data_dir, options)
    settings = loaded.settings
    if file is not None:
        os.environ["EDGE_CONFIG"] = str(file.absolute())  # for the commands that the gateway runs

    from edge import log, process
    from edge.gateway import Launch, StartError, StopError

    _keep_private(settings.data_dir)
    lines = log.configure(settings.log.level, settings.log.format)
    _complete_restore(settings.data_dir)
    try:
        again = process.run(settings, Launch(loaded.origins, lines), ready=functools.partial(_ready, file))
    except (StartError, StopError) as error:
        failure = Failure(error.description, REFUSED)
        failure.show()
        if isinstance(error, StartError) and _undo_restore(settings.data_dir, error.description):
            process.start_again()
        process.exit_now(failure.exit_code)
    if again:
        process.start_again()
    process.exit_now(0)


def _complete_restore(data_dir: Path) -> None:
    """Put a backup in place that was staged for this start."""
    if not (data_dir / ".restore").exists():
        return
    from edge.backup import complete

    try:
        complete(data_dir)
    except EdgeError as error:
        raise Failure(error.description, REFUSED) from None
    except OSError as error:
        raise _not_back(data_dir, error) from None


def _undo_restore(data_dir: Path, reason: str) -> bool:
    """Take a restored backup back with which the gateway does not start. Returns whether there was one."""
    if not (data_dir / ".restore").exists():
        return False
    from edge.backup import undo

    try:
        return undo(data_dir, reason)
    except (OSError, EdgeError) as error:
        _not_back(data_dir, error).show()
        return False


def _not_back(data_dir: Path, error: Exception) -> Failure:
    reason = error.description if isinstance(error, EdgeError) else str(error)
    return Failure(
        f"A restored backup could be put neither in place nor back: {reason}. The files from before it are in "
        f"{data_dir}/.restore/old and {data_dir}. Remove the cause, and start the gateway again",
        REFUSED,
    )


def _ready(file: Path | None, gateway: Gateway) -> None:
    if (gateway.settings.data_dir / ".restore").exists():
        from edge.backup import confirm

        with contextlib.suppress(OSError):  # the next start goes on
            confirm(gateway.settings.data_dir)
    _greet(file, gateway)


def _keep_private(data_dir: Path) -> None:
    """Restrict the files of the gateway to its user: others on this machine could read data that needs a token.

    This includes a journal that an earlier version made readable for others.
    """
    # After the imports: bytecode that Python writes for them stays readable, like the modules.
    os.umask(0o077)
    for file in data_dir.glob("edge.sqlite3*"):
        with contextlib.suppress(OSError):  # owned by another user
            file.chmod(0o600)


def _greet(file: Path | None, gateway: Gateway) -> None:
    """Print the addresses, and commands that show the gateway at work. `file`: its settings."""
    where = gateway.endpoints
    command = _command()
    directory = "" if gateway.is_default_data_dir else f" --data-dir {shlex.quote(str(gateway.settings.data_dir))}"
    broker = "your broker" if gateway.settings.mqtt.broker else "embedded broker"
    if not gateway.settings.serves_mqtt_clients and gateway.settings.mqtt_gate.enabled == "auto":
        broker += "; neither clients nor continuous queries there (docs/mqtt-gate.md)"
    rows = [
        ("page", where["http"] + "/", "current observations, in a browser"),
        ("SPARQL", where["http"] + "/sparql", "queries and updates"),
        ("subscribe", where["ws"], "SPARQL subscriptions"),
    ]
    if "https" in where:
        rows.append(("secure", where["https"], "the same with TLS, for clients of `edge clients`"))
        rows.append(("", where["wss"], ""))
    if "mqtt" in where:
        rows.append(("MQTT", where["mqtt"], f"readings; {broker}"))
    if "coap" in where:
        rows.append(("CoAP", where["coap"], "the same for constrained devices"))
    rows.append(("data", str(gateway.settings.data_dir), "everything that survives a restart"))
    width = max(len(value) for _, value, _ in rows[:-1])
    text = [f"sepa-edge {__version__} is running. Ctrl-C stops it.", ""]
    text += [f"  {name:<10} {value:<{width}}  {note}" for name, value, note in rows]
    text += ["", gateway.read_only] if gateway.read_only else _examples(file, gateway, command, directory)
    try:
        click.echo("\n".join([*text, ""]))
    except (OSError, OutputFailed):
        # The reader of standard output is gone, or its disk is full. The gateway continues.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - lives as long as the process


def _examples(file: Path | None, gateway: Gateway, command: str, directory: str) -> list[str]:
    """Return commands that show the gateway at work."""
    text: list[str] = []
    if gateway.settings.security.enabled:
        settings = "" if file is None else f" --config {shlex.quote(str(file))}"
        allow, token = (f"{command} clients {what} me{settings}{directory}" for what in ("allow", "token"))
        text += ["", "Clients need a token. In another terminal, as this user, give yourself access:", ""]
        text += [f"  {allow}", f"  export EDGE_TOKEN=$({token})"]
        text += ["", "Then subscribe to changes:", ""]
    else:
        text += ["", "In another terminal, subscribe to changes:", ""]
    text += [f"  {command} subscribe{directory} {shlex.quote(_EXAMPLE_QUERY)}"]
    if "mqtt" in gateway.endpoints:
        publish = f"{command} publish{directory} {_EXAMPLE_TOPIC} {shlex.quote(_EXAMPLE_PAYLOAD)}"
        text += ["", "and publish a reading:", "", f"  {publish}"]
    return text


def _command() -> str:
    """Return the command that starts this very program in another terminal."""
    started = Path(sys.argv[0])
    found = shutil.which("edge")
    if started.name == "edge":
        # The first `edge` in PATH may belong to another installation, so its short name is printed only if it is this
        # one.
        if found is not None and Path(found).resolve() == started.resolve():
            return "edge"
        here = started.absolute()
        return shlex.quote(str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here))
    return f"{shlex.quote(sys.executable)} -m edge"
