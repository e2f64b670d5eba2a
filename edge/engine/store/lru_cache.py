"""LRU caches of function results, bounded by the number of characters of the arguments.

Terms can be megabytes long, so a cache must not hold thousands of results after the graph has dropped the terms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_CHARACTERS: Final = 16_000_000
"""Characters of all cached arguments at which a cache is cleared."""


def bounded_cache(most: int, size: Callable[..., int]) -> Callable[[F], F]:
    """Cache the last `most` results of a function. `size`: function that returns the characters of the arguments.

    A cache hit costs nothing extra, since only new arguments are measured.
    """

    def decorate(function: F) -> F:
        held = 0

        def compute(*arguments: Any) -> Any:  # noqa: ANN401  whatever the function accepts
            nonlocal held
            # An upper bound: evicted entries count until the cache is cleared.
            held += size(*arguments)
            if held > _CHARACTERS:
                held = 0
                cached.cache_clear()
            return function(*arguments)

        cached = lru_cache(maxsize=most)(compute)
        return update_wrapper(cached, function)  # type: ignore[return-value]

    return decorate
