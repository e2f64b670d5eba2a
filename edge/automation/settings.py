"""Settings of the rules."""

from __future__ import annotations

from edge.section import Section, fixed, key
from edge.section_types import OptionalPath


class AutomationSettings(Section):
    """Rules: situations in the graph that the gateway answers with updates."""

    dir: OptionalPath = key(None, "Directory of the rules. Empty: DATA_DIR/rules.")
    max_situations: int = key(
        10_000, "Situations of one rule at the same time. The gateway stops a rule that finds more.", minimum=1
    )
    max_rate: float = key(
        10.0,
        "Rate limit of one rule in updates a second, with bursts of ten seconds. Beyond it, the rule waits. It bounds "
        "the effect of rules that start each other.",
        minimum=0.01,
        maximum=1000,
    )
    reload_interval: float = fixed(2.0, "Seconds between two checks for changed rules.")
