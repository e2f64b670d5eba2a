"""Number of examples of a property test."""

import os

_SHARE = float(os.environ.get("TEST_EXAMPLES", "1"))


def examples(number: int) -> int:
    """Return the examples to try: all of them, or the share that the environment variable TEST_EXAMPLES asks for."""
    return max(5, round(number * _SHARE))
