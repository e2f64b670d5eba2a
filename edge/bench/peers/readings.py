"""The readings that every side receives, and the check of the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

TOPIC: Final = "peers"
"""First level of the topics of the readings."""
THRESHOLD: Final = 30
"""The rule of every side: the temperature is above this value."""
_SENSORS: Final = 1_000


@dataclass(frozen=True, slots=True)
class PeerReading:
    """One message. The temperatures of a run are all different, so that each result names its reading."""

    topic: str
    payload: bytes
    temperature: int

    @property
    def passes(self) -> bool:
        """Whether the rule selects this reading."""
        return self.temperature > THRESHOLD


def readings(share: int) -> Iterator[PeerReading]:
    """Yield readings of 1,000 sensors in turn, of which one in `share` passes.

    If not all pass, each sensor has readings of both kinds.
    """
    number = 0
    while True:
        turn, sensor = divmod(number, _SENSORS)
        number += 1
        temperature = THRESHOLD + number if (sensor + turn) % share == 0 else -number
        yield PeerReading(
            f"{TOPIC}/s{sensor}", b'{"sensor":"s%d","temperature":%d}' % (sensor, temperature), temperature
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Comparison of the results of a phase with its readings."""

    expected: int
    lost: int
    repeated: int
    disordered: int
    """Results that arrived after the result of a later reading."""
    wrong: int
    """Results of readings that do not pass, or of none."""

    @property
    def correct(self) -> bool:
        """Whether each reading that passes arrived, in order, none twice, and nothing else."""
        return not (self.lost or self.repeated or self.disordered or self.wrong)

    def __str__(self) -> str:
        faults = {
            "lost": self.lost,
            "repeated": self.repeated,
            "out of order": self.disordered,
            "wrong": self.wrong,
        }
        return ", ".join(f"{count:,} {name}" for name, count in faults.items() if count) + f" of {self.expected:,}"


def check(expected: Sequence[int], received: Sequence[int]) -> Verdict:
    """Compare the temperatures of the results with those of the readings that pass."""
    due, seen = set(expected), set[int]()
    repeated = disordered = wrong = latest = 0
    for temperature in received:
        if temperature not in due:
            wrong += 1
        elif temperature in seen:
            repeated += 1
        else:
            disordered += temperature < latest  # temperatures that pass grow
            latest = max(latest, temperature)
            seen.add(temperature)
    return Verdict(len(expected), len(due) - len(seen), repeated, disordered, wrong)
