"""Speed of the machine, for limits of processor time."""

import time

_LOOPS = 2_000_000
_USUAL = 0.045
"""Processor seconds of the loop on the machine for which the limits were chosen."""


def slowness() -> float:
    """Return how many times as long as there Python takes here at present; at least 1."""
    began = time.process_time()
    for _ in range(_LOOPS):
        pass
    return max(1.0, (time.process_time() - began) / _USUAL)
