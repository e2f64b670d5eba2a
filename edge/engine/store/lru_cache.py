"""Functions that remember what they gave for recent arguments, as long as that is not too many characters.

Terms can be megabytes long. Thousands of answers about such must not be kept when the graph has forgotten them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_CHARACTERS: Final = 16_000_000
"""Of arguments since all was last forgotten."""


def bounded_cache(most: int, size: Callable[..., int]) -> Callable[[F], F]:
    """Have a function remember `most` answers. `size`: how many characters its arguments have.

    It costs nothing where the answer is known: arguments are measured when they are new.
    """

    def decorate(function: F) -> F:
        held = 0

        def anew(*arguments: Any) -> Any:  # noqa: ANN401  whatever the function takes and gives
            nonlocal held
            held += size(*arguments)
            if held > _CHARACTERS:
                held = 0
                cached.cache_clear()
            return function(*arguments)

        cached = lru_cache(maxsize=most)(anew)
        return update_wrapper(cached, function)  # type: ignore[return-value]

    return decorate
