"""Settings of the Sparkplug B host application."""

from __future__ import annotations

from pydantic import field_validator

from edge.section import KIB, MIB, Section, fixed, key


class SparkplugSettings(Section):
    """Sparkplug B: the gateway as a host application of edge nodes."""

    enabled: bool = key(
        False,
        "Whether the gateway reads Sparkplug B edge nodes at its broker. Let only trusted clients publish below "
        "spBv1.0/.",
    )
    groups: tuple[str, ...] = key((), "Groups whose edge nodes are read. Empty: all.")
    host_id: str = key("sepa-edge", "Host identifier: the last level of the topic spBv1.0/STATE/HOST_ID.")
    primary: bool = key(
        False,
        "Whether the gateway publishes its state as a host application (spBv1.0/STATE/HOST_ID), for edge nodes whose "
        "primary host it is.",
    )
    writable: tuple[str, ...] = key(
        (),
        "Metrics that clients can set, as globs of GROUP/NODE/METRIC and GROUP/NODE/DEVICE/METRIC, such as "
        '"Plant/*/Setpoints/*". Empty: none.',
    )
    store: bool = key(False, "Whether values are stored for the history, among them those that nodes send later.")
    reorder_timeout: float = key(
        5.0,
        "Time to wait for a message that arrives after its successors, before a rebirth is requested.",
        unit="s",
        minimum=0.05,
        maximum=600,
    )
    rebirth_interval: float = key(
        5.0,
        "Least time between two requests for a rebirth to one edge node. It doubles while more requests are "
        "necessary, to at most 5 minutes.",
        unit="s",
        minimum=0.05,
        maximum=300,
    )
    max_nodes: int = key(200, "Edge nodes that are read.", minimum=1, maximum=10_000)
    max_metrics: int = key(
        5000,
        "Metrics of all edge nodes, also those that are not read. A node or device without metrics counts as one.",
        minimum=1,
        maximum=100_000,
    )
    max_payload: int = key(
        1 * MIB, "Largest payload. The gateway ignores and lists larger ones.", unit="bytes", minimum=KIB
    )
    max_queued: int = key(
        2000,
        "Messages that may wait. Beyond this number the gateway drops new ones, and requests the births again.",
        minimum=10,
    )
    max_batch: int = fixed(
        100, "Readings with which a batch for the engine is full. A message is divided above 50 readings."
    )
    retry_min: float = fixed(0.2, "Seconds of the first back-off while the engine cannot accept an update.")
    retry_max: float = fixed(30.0, "Seconds of the longest such back-off.")

    @field_validator("groups")
    @classmethod
    def _groups(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for group in value:
            _check_level(group)
        return value

    @field_validator("host_id")
    @classmethod
    def _host_id(cls, value: str) -> str:
        _check_level(value)
        return value


def _check_level(text: str) -> None:
    # Sparkplug 3.0, section 4.1: identifiers are one level of a topic.
    if not text or any(char in "+/#" or ord(char) < 32 for char in text):
        raise ValueError("must be one level of a topic: not empty, without /, + and #")
