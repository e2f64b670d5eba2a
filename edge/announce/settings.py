"""Settings of announcements."""

from __future__ import annotations

from pydantic import field_validator

from edge.announce.topics import is_beginning
from edge.section import Section, key


class AnnounceSettings(Section):
    """Observations and continuous queries as entities of Home Assistant: MQTT discovery, out."""

    home_assistant: bool = key(
        False,
        "Whether the gateway announces its observations, the results of its continuous queries and the values that can "
        "be set to Home Assistant, below discovery.prefix.",
    )
    root: str = key(
        "sepa/home-assistant",
        "Beginning of the topics of states and commands. The client identifier of the gateway at the broker follows.",
    )
    client: str = key(
        "",
        "Client of `edge clients` whose rights decide what is announced and set. Without security, it has no effect; "
        "with security, nothing is announced without it.",
    )
    commands: bool = key(
        True,
        "Whether Home Assistant can set values (edge:desired). At a broker without access control, any of its clients "
        "can.",
    )
    exclude: tuple[str, ...] = key(
        ("urn:sepa-edge:home-assistant:",),
        "Beginnings of the IRIs of observations that are not announced. The default is for values that come from Home "
        "Assistant, which would otherwise return to it as new entities.",
    )
    interval: float = key(
        1.0,
        "Least time between two states of an entity. Of the values between, only the newest is sent.",
        unit="s",
        minimum=0.01,
        maximum=86_400,
    )
    rate: float = key(100.0, "Rate limit of messages a second over all topics.", minimum=0.1, maximum=10_000)
    max_entities: int = key(1000, "Announced entities. Further ones are left out.", minimum=1, maximum=100_000)

    @field_validator("root")
    @classmethod
    def _levels(cls, value: str) -> str:
        if not is_beginning(value):
            raise ValueError("must be a topic without wildcards, and without a slash at its end")
        return value
