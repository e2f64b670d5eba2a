"""English texts of the findings, by code. `edge/web/texts/findings` has them in other languages."""

from __future__ import annotations

from typing import Final, NamedTuple


class FindingTexts(NamedTuple):
    """Texts with placeholders in the format of `str.format`."""

    what: str
    """State with figures."""
    why: str = ""
    """Reason why it matters."""
    do: str = ""
    """Remedy."""
    done: str = ""
    """Result of the safe fix."""


_WAITS: Final = "{count:,} observations ({megabytes:,.1f} MB) wait for the history"
_OFFLOAD: Final = "`edge outbox status` shows the reason; see docs/offload.md"
_BROKER: Final = "no readings arrive; a broker with persistence stores those of QoS 1 and 2"
_WORN: Final = "a worn card becomes read-only or loses data; store backups elsewhere"
_REPLACE: Final = "make a backup (`edge backup`), and replace the card; see docs/operations.md for durable ones"
_OWN: Final = "the gateway's certificate"
_AUTHORITY: Final = "the authority's certificate"
_UNTIL: Final = "({file}) is valid until {date}"
_NO_CONNECTION: Final = "no client can connect that way"
_RENEW_OWN: Final = "edge cert init"
_RENEW_AUTHORITY: Final = "move it away, run `edge cert init`, distribute the new one to clients"
_RENEW_FILE: Final = "replace it with a renewed one"
_EXPIRED: Final = "clients, or the gateway itself, refuse connections then"
_CLOCK: Final = "readings get wrong times, tokens and certificates expire wrongly, updates `at` a time run wrongly"
_TIME_SERVER: Final = "check that the host reaches a time server: `timedatectl`, `systemctl status systemd-timesyncd`"
_FREE: Final = "{free:,} MB are free of {total:,.1f} GB"
_SPACE: Final = "free space: old logs (`journalctl --vacuum-size=50M`), packages (`apt clean`), DATA_DIR.before-restore"
_MEMORY: Final = "without free memory the kernel ends a process, probably the gateway if it is the largest"
_PROCESSES: Final = "find the largest processes (`ps aux --sort=-rss | head`); end one, or use a host with more memory"
_GAP: Final = "charts have a gap there; all other values are complete"
_HEAT: Final = "a hot host runs slower, and heat shortens the lifetime of its card"
_AIR: Final = "improve the cooling: airflow, a heat sink or a fan; avoid direct sun"
_POWER: Final = "hosts with too little power crash and damage the data on their card"
_SUPPLY: Final = "use the manufacturer's power supply, a short cable, and a powered hub for USB devices"
_ENDED: Final = "runs of the last day that did not end normally: {count}; the last one: "
_DOWNTIME: Final = "during a downtime readings are lost, or wait at the broker"
_WAL: Final = "{file} takes {megabytes:,} MB"

TEXTS: Final[dict[str, FindingTexts]] = {
    "check.failed": FindingTexts("this check failed: {reason}"),
    "backlog.unknown": FindingTexts("the backlog is not known"),
    "backlog.full": FindingTexts(
        "{count:,} updates wait, of at most {limit:,}",
        "beyond the limit, updates are refused",
        "`edge engine` shows the cost of updates, `edge explain` that of a subscription; or send less",
    ),
    "backlog.updates": FindingTexts("{count:,} updates wait"),
    "backlog.dropped": FindingTexts("{count:,} observations are lost to the history", "its outbox was full", _OFFLOAD),
    "backlog.not_shipped": FindingTexts(
        "nothing is shipped: {reason}", f"{_WAITS}; when the outbox is full they are dropped", _OFFLOAD
    ),
    "backlog.outbox_full": FindingTexts(
        f"{_WAITS}, of at most {{limit:,}} MB", "beyond it the oldest are dropped, or updates fail", _OFFLOAD
    ),
    "backlog.old": FindingTexts(
        f"{_WAITS}, the oldest for {{days:.1f}} days", "the history does not have them yet", _OFFLOAD
    ),
    "backlog.outbox": FindingTexts(_WAITS),
    "broker.off": FindingTexts("MQTT is off (mqtt.enabled)"),
    "broker.embedded": FindingTexts(
        "the embedded one; it stores nothing while the gateway is down (docs/durability.md)"
    ),
    "broker.connected": FindingTexts("the gateway is connected to {broker}"),
    "broker.not_subscribed": FindingTexts(
        "{broker} has not accepted the subscriptions to all of mqtt.topics",
        "readings of the refused ones do not arrive",
        "permit the gateway's user to subscribe to mqtt.topics, in the access control of the broker; its log has "
        "the refused filters (`journalctl -u edge | grep subscription_refused`)",
    ),
    "broker.unreachable": FindingTexts(
        "{broker} cannot be reached: {reason}",
        _BROKER,
        "check that the broker runs, and host and port in mqtt.broker; the gateway reconnects",
    ),
    "broker.unknown": FindingTexts("{broker} accepts connections; whether the gateway is connected is not known"),
    "broker.not_connected": FindingTexts(
        "{broker} accepts connections, but the gateway is not connected",
        _BROKER,
        "its log has the reason (`journalctl -u edge | grep mqtt`): user name, password, certificate, or another "
        "client with the same name",
    ),
    "card.unknown": FindingTexts("the kernel has no data about the disk of the data directory"),
    "card.used": FindingTexts("{disk}: at most {percent} % of its lifetime are used", _WORN, _REPLACE),
    "card.used_up": FindingTexts("{disk}: all of its lifetime is used", _WORN, _REPLACE),
    "card.reserve": FindingTexts("{disk}: {percent} % of its reserve blocks are used", _WORN, _REPLACE),
    "card.no_estimate": FindingTexts(
        "{disk} does not report its wear, and the uptime of the host is too short for an estimate"
    ),
    "card.written": FindingTexts(
        "{disk}: {gigabytes:.2f} GB a day are written",
        "a card is worn out after some 10 to 100 TB",
        "find the writer (`iotop -ao`): logs, swap; for the gateway, `edge bench wear` and docs/operations.md",
    ),
    "card.written_own": FindingTexts(
        "{disk}: {gigabytes:.2f} GB a day are written; the gateway itself has written {own:,} MB of {written:,} MB",
        "a card is worn out after some 10 to 100 TB",
        "find the writer (`iotop -ao`): logs, swap; for the gateway, `edge bench wear` and docs/operations.md",
    ),
    "certificates.none": FindingTexts("none are in use"),
    "certificates.refused_own": FindingTexts(f"{_OWN}: {{reason}}", _NO_CONNECTION, _RENEW_OWN),
    "certificates.refused_authority": FindingTexts(f"{_AUTHORITY}: {{reason}}", _NO_CONNECTION, _RENEW_AUTHORITY),
    "certificates.refused_file": FindingTexts("{setting}: {reason}", _NO_CONNECTION, _RENEW_FILE),
    "certificates.expired_own": FindingTexts(f"{_OWN} {_UNTIL}", _EXPIRED, f"check the clock; then: {_RENEW_OWN}"),
    "certificates.expired_authority": FindingTexts(
        f"{_AUTHORITY} {_UNTIL}", _EXPIRED, f"check the clock; then: {_RENEW_AUTHORITY}"
    ),
    "certificates.expired_file": FindingTexts(
        f"{{setting}} {_UNTIL}", _EXPIRED, f"check the clock; then: {_RENEW_FILE}"
    ),
    "certificates.valid_own": FindingTexts(f"{_OWN} {_UNTIL}", _EXPIRED, _RENEW_OWN),
    "certificates.valid_authority": FindingTexts(f"{_AUTHORITY} {_UNTIL}", _EXPIRED, _RENEW_AUTHORITY),
    "certificates.valid_file": FindingTexts(f"{{setting}} {_UNTIL}", _EXPIRED, _RENEW_FILE),
    "clock.early": FindingTexts("the clock shows {date}", _CLOCK, _TIME_SERVER),
    "clock.set_back": FindingTexts(
        "the clock shows {date}, and the gateway was started {started}", _CLOCK, _TIME_SERVER
    ),
    "clock.unknown": FindingTexts("the kernel does not report whether the clock is synchronized"),
    "clock.synchronized": FindingTexts("it is synchronized with a time server"),
    "clock.not_synchronized": FindingTexts(
        "it is not synchronized", f"it drifts some seconds a day: {_CLOCK}", _TIME_SERVER
    ),
    "clock.no_battery": FindingTexts(
        "it is not synchronized, and the host has no clock with a battery",
        f"it drifts some seconds a day: {_CLOCK}",
        _TIME_SERVER,
    ),
    "disk.read_only": FindingTexts(
        "{place} is read-only",
        "nothing can be stored, so updates are refused",
        "the kernel does this after file system errors: check `dmesg`, make a backup, replace the card",
    ),
    "disk.passing": FindingTexts(
        "the data directory is on {kind}",
        "its content may be lost with a restart",
        "set data_dir to a directory on a disk",
    ),
    "disk.inodes": FindingTexts(
        "only {count} more files fit on {place}",
        "without inodes no file can be created",
        "find a directory with very many small files, and empty it",
    ),
    "disk.full": FindingTexts(
        _FREE, "updates are refused when the disk is full; queries continue, and readings wait at the broker", _SPACE
    ),
    "disk.little": FindingTexts(
        f"{_FREE}; the gateway may need {{needed:,}} MB", "a full disk refuses updates", _SPACE
    ),
    "disk.free": FindingTexts(_FREE),
    "files.no_directory": FindingTexts("{directory} is not there yet; the gateway creates it"),
    "files.in_order": FindingTexts("{directory} is in order"),
    "files.readable": FindingTexts(
        "other users of this machine have access to {names}",
        "they can read data that need a token",
        "chmod go= {paths}",
        "{names}: for the owner alone",
    ),
    "files.clients_damaged": FindingTexts(
        "{file} is damaged, or cannot be read: {reason}",
        "the gateway does not start with security, or clients are refused",
        "edge restore of a backup; without one move the file away, and allow the clients again",
    ),
    "files.client_rows_damaged": FindingTexts(
        "{file} has damaged rows: {rows}",
        "these are refused; all others work",
        "a client: edge clients revoke, then edge clients allow; a signing key: edge clients rotate-key --now; "
        "an OSCORE key: edge clients oscore; or edge restore of a backup",
    ),
    "files.foreign": FindingTexts(
        "{names} do not belong to the owner of {directory}",
        "the gateway may be unable to write them",
        "chown --recursive --reference={directory} {directory}",
        "{count} of them belong to the owner of the directory now",
    ),
    "files.drafts": FindingTexts(
        "left over: {names}", "they are parts of unfinished files, and take space", "rm {paths}", "removed {names}"
    ),
    "files.endpoints": FindingTexts(
        "{file} names addresses, and no gateway runs",
        "commands use these addresses",
        "rm {path}; the next start writes it again",
        "removed {file}",
    ),
    "files.restore_draft": FindingTexts(
        "left over: {path}", "a killed restore left it, and it takes space", "rm -r {path}", "removed {name}"
    ),
    "files.before_restore": FindingTexts(
        "{path} is the data directory before a restore",
        "it takes space, and contains old secrets",
        "remove it when you do not need it any more",
    ),
    "files.staged": FindingTexts(
        "a backup is staged",
        "the next start of the gateway replaces its data by those of the backup",
        "restart the gateway, or forget the backup: edge restore --unstage",
    ),
    "files.log_stopped": FindingTexts(
        _WAL,
        "it takes space until the gateway is started",
        "start the gateway, or let --fix move it into the file",
        "the write-ahead log is in the file now",
    ),
    "files.log_held": FindingTexts(
        _WAL,
        "another program reads the file, so it cannot be emptied",
        "end other programs that have it open (`fuser -v`)",
    ),
    "gateway.no_access": FindingTexts(
        "this user may not read {directory}, so the state of its gateway is not known",
        "",
        "run it as root (`sudo edge doctor`), or as the user that runs the gateway",
    ),
    "gateway.stopped": FindingTexts(
        "no gateway runs on {directory}",
        "readings are lost, or wait at the broker; some checks are not possible without the gateway",
        "start it: `systemctl start edge`, or `edge run`; select another gateway with --data-dir or --config",
    ),
    "gateway.silent": FindingTexts(
        "it runs (process {process}) and does not answer: {reason}",
        "clients get no answer either; some checks are not possible without an answer",
        "check its log (`journalctl -u edge`); wait if it is starting, else restart it: `systemctl restart edge`",
    ),
    "gateway.denied": FindingTexts(
        "it runs (process {process}), but rejects the token in EDGE_TOKEN",
        "",
        "edge clients token NAME prints one",
    ),
    "gateway.degraded": FindingTexts(
        "{reason}", "the gateway is degraded", "solve the reported problem; the gateway then continues by itself"
    ),
    "gateway.status": FindingTexts(
        "it answers {status}",
        "the gateway is degraded",
        "solve the reported problem; the gateway then continues by itself",
    ),
    "gateway.stalled": FindingTexts(
        "a component makes no progress: {component}: {reason}",
        "the watchdog restarts it if it stays so",
        "check again",
    ),
    "gateway.mapping_fault": FindingTexts(
        "a mapping has an error: {reason}",
        "it has no effect",
        "see `edge mapping check FILE`; the gateway loads the file as soon as it is saved",
    ),
    "gateway.mapping_fault_previous": FindingTexts(
        "a mapping has an error: {reason}",
        "its previous version applies until the gateway restarts",
        "see `edge mapping check FILE`; the gateway loads the file as soon as it is saved",
    ),
    "gateway.mapping_fault_announced": FindingTexts(
        "a device announces something that cannot be used: {reason}",
        "the value is missing, cannot be set, has no unit, or follows the previous announcement",
        "correct it at the device, or map its messages in your own file: docs/how-to/discovery.md, docs/sparkplug.md",
    ),
    "gateway.rule_fault": FindingTexts(
        "a rule has an error: {reason}",
        "it has no effect",
        "see `edge rules test FILE`; the gateway loads the file as soon as it is saved",
    ),
    "gateway.query_fault": FindingTexts(
        "a continuous query has an error: {reason}",
        "it has no effect",
        "correct its file, or publish the query again",
    ),
    "gateway.announce_fault": FindingTexts(
        "announcing to Home Assistant fails: {reason}",
        "Home Assistant may show old values, or no devices",
        "see docs/how-to/home-assistant.md; the gateway tries again",
    ),
    "gateway.runs": FindingTexts("version {version} runs (process {process}), and all its components make progress"),
    "gateway.few_details": FindingTexts(
        "unauthenticated clients get few details: backlog and mapping problems were not checked",
        "",
        "export EDGE_TOKEN=$(edge clients token NAME) of a client that may administer",
    ),
    "memory.unknown": FindingTexts("the kernel does not report it"),
    "memory.free": FindingTexts("{free:,} MB are free of {total:,} MB", _MEMORY, _PROCESSES),
    "memory.free_own": FindingTexts(
        "{free:,} MB are free of {total:,} MB; the gateway takes {own:,} MB", _MEMORY, _PROCESSES
    ),
    "memory.swap": FindingTexts(
        "{megabytes:,} MB are in swap space on the card", "this wears out the card, and is slow", _PROCESSES
    ),
    "memory.killed": FindingTexts(
        "the kernel has ended {count} processes since its start for lack of memory",
        _MEMORY,
        f"`journalctl -k | grep -i oom` shows which; {_PROCESSES}",
    ),
    "modbus.answers": FindingTexts("the Modbus device {name} answers"),
    "modbus.no_value": FindingTexts(
        "the Modbus device {name} answers, but gives no value of {values}",
        "these observations keep their last value",
        "see /api/bad-values for the answer of the device; try the register with `edge modbus read` (docs/modbus.md)",
    ),
    "modbus.silent": FindingTexts(
        "the Modbus device {name} does not answer{reason}",
        "its values are not updated, and commands wait",
        "check its power and wiring, and host, `unit_id`, `baud` and `parity` in the mapping file "
        "(docs/modbus.md); the gateway tries again by itself",
    ),
    "sparkplug.connected": FindingTexts("Sparkplug edge nodes and devices that are connected: {count}"),
    "sparkplug.refused": FindingTexts(
        "the birth of the Sparkplug device {name} is refused{reason}",
        "its values are ignored",
        "remove the cause (docs/sparkplug.md), then restart the edge node",
    ),
    "sparkplug.away": FindingTexts(
        "the Sparkplug edge node or device {name} is not connected",
        "its values are old, and commands wait for its birth",
        "check its power, its connection to the broker and its primary host identifier (docs/sparkplug.md)",
    ),
    "sparkplug.more": FindingTexts(
        "more Sparkplug edge nodes and devices that are not connected or refused: {count}",
        "their values are old or ignored",
        "see `sparkplug` in /health",
    ),
    "recent.off": FindingTexts("no recent values are kept: recent.enabled is false"),
    "recent.files_damaged": FindingTexts(
        "{count} files of recent values are damaged: {names}",
        _GAP,
        "edge restore of a backup, or delete them: they are in {directory}",
    ),
    "recent.more_files_damaged": FindingTexts(
        "{count} files of recent values are damaged: {names} and {more} more",
        _GAP,
        "edge restore of a backup, or delete them: they are in {directory}",
    ),
    "recent.bytes": FindingTexts("recent values take {megabytes:,.1f} MB, of at most {limit:,} MB"),
    "recent.not_written": FindingTexts(
        "recent values are not written: {reason}",
        "they wait in memory, and the oldest are dropped when it is full",
        "free space on the disk, or make DATA_DIR/recent a writable directory; the gateway tries again by itself",
    ),
    "recent.parts_damaged": FindingTexts(
        "{count} damaged parts of recent values were found since the start",
        _GAP,
        "the log names the files (recent.file_damaged); if it happens again, check the card",
    ),
    "recent.removed": FindingTexts(
        "{count} files of recent values were removed before their time since the start",
        "they took more than recent.max_bytes, so charts begin later",
        "a larger recent.max_bytes, or shorter recent.raw_hours and recent.minutes_days",
    ),
    "restarts.first": FindingTexts("nothing has run here yet"),
    "restarts.unreadable": FindingTexts("{file} cannot be read: {reason}"),
    "restarts.none": FindingTexts("starts so far: {count}; none of the last day after a fault"),
    "restarts.crashed": FindingTexts(
        _ENDED + "it was killed, or crashed, while the machine ran on{detail}",
        _DOWNTIME,
        "check the kernel log (`journalctl -k | grep -i -e oom -e segfault`), and the log before the start",
    ),
    "restarts.power": FindingTexts(
        _ENDED + "power cut or reset of the machine{detail}",
        _DOWNTIME,
        "check the power supply, and whether a hardware watchdog has reset the host",
    ),
    "restarts.lost": FindingTexts(
        _ENDED + "it could not mend itself and ended{detail}",
        _DOWNTIME,
        "the reason names the stalled component; `edge engine` shows the cost of updates",
    ),
    "restarts.stuck": FindingTexts(
        _ENDED + "its event loop stood still and it ended{detail}",
        _DOWNTIME,
        "the log has the stack (`journalctl -u edge`); please report it",
    ),
    "restarts.stop_timeout": FindingTexts(
        _ENDED + "it did not stop in time and was ended{detail}",
        _DOWNTIME,
        "a disk or a client was slow; consider a longer shutdown.timeout",
    ),
    "restarts.start_failed": FindingTexts(
        _ENDED + "it could not start{detail}",
        _DOWNTIME,
        "the log has the reason; `edge config check` checks the settings",
    ),
    "restarts.unknown": FindingTexts(
        _ENDED + "its record cannot be read{detail}",
        _DOWNTIME,
        "the file last-run.json was damaged, maybe by the card",
    ),
    "serial.connected": FindingTexts("the port {name} is connected"),
    "serial.not_connected": FindingTexts(
        "the port {name} is not connected{reason}",
        "its device neither sends readings nor gets commands",
        "check the plug, its `device` in the mapping file, and the group dialout "
        "(docs/serial.md); the gateway reconnects by itself",
    ),
    "temperature.degrees": FindingTexts("{degrees} °C", _HEAT, _AIR),
    "temperature.low_voltage": FindingTexts("the voltage is too low", _POWER, _SUPPLY),
    "temperature.voltage": FindingTexts("the voltage is right"),
    "temperature.unknown": FindingTexts("the kernel knows no temperature sensor of this host"),
    "temperature.was_low": FindingTexts("the voltage was too low since the start of the machine", _POWER, _SUPPLY),
    "temperature.slowed": FindingTexts("the processor is slowed down by its firmware", _HEAT, f"{_AIR}; {_SUPPLY}"),
    "temperature.was_slowed": FindingTexts(
        "the processor was slowed down since the start of the machine", _HEAT, f"{_AIR}; {_SUPPLY}"
    ),
    "temperature.firmware": FindingTexts("the firmware sees enough power, and slows nothing down"),
    "units.no_systemd": FindingTexts("systemd does not run here"),
    "units.others_failed": FindingTexts(
        "failed units: {names}", "a service of the host does not work", "systemctl status {units}"
    ),
    "units.not_there": FindingTexts(
        "systemd has no {unit}: the gateway does not start with the host, or another program starts it"
    ),
    "units.failed": FindingTexts(
        "{unit} has failed ({result})",
        "systemd does not restart it",
        "`journalctl -u {unit} -n 50` has the reason; then `systemctl restart {unit}`",
    ),
    "units.inactive": FindingTexts("{unit} is {state}", "the gateway is down", "systemctl start {unit}"),
    "units.disabled": FindingTexts(
        "{unit} is not enabled", "after a power cut the gateway stays down", "systemctl enable {unit}"
    ),
    "units.restarted": FindingTexts(
        "systemd has restarted the gateway {count} times",
        "it ends unexpectedly",
        "see the check `restarts` and the log",
    ),
    "units.active": FindingTexts("{unit} is active, and was never restarted"),
    "update.undone": FindingTexts(
        "the update to {version} was undone: its gateway did not become healthy",
        "the host runs the previous system",
        "install a newer one: docs/images.md; its leftover files, if any, are in /data/of-undone-update",
    ),
    "update.trial": FindingTexts(
        "the update to {version} is not confirmed yet",
        "it is undone if its gateway does not become healthy",
        "if the host was not restarted since the installation: `reboot`",
    ),
    "update.none": FindingTexts("no update was undone, and none waits for its confirmation"),
}
