"""Reduction of a failing story to a minimal one, printed as a test.

Usage: `python tests/engine/shrink.py SEED ...`.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from generated_patterns import PREFIX
from story import Story, Subscribe, Unsubscribe, Update, draw, tell

T = TypeVar("T")
SHORT = 6


@dataclass(frozen=True)
class Failure:
    """The failure of a story. Two failures are alike if they raise the same error at the same place."""

    error: str
    place: tuple[str, str]
    message: str

    def like(self, other: Failure | None) -> bool:
        """Return whether another failure is alike."""
        return other is not None and (self.error, self.place) == (other.error, other.place)

    def __str__(self) -> str:
        return f"{self.error} in {':'.join(self.place)}: {self.message}"


def failure(story: Story) -> Failure | None:
    """Return the failure of a story, or None."""
    try:
        tell(story)
    except BaseException as error:  # the exceptions of pytest are not subclasses of Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        *_, last = traceback.extract_tb(error.__traceback__)
        return Failure(type(error).__name__, (Path(last.filename).name, last.name), str(error))
    return None


def shrunk(story: Story) -> Story:
    """Return a story with fewer steps, operations and words that fails in the same way."""
    kind = failure(story)
    assert kind is not None, "it does not fail"

    def fails(shorter: Sequence[object]) -> bool:
        return kind.like(failure(tuple(shorter)))  # type: ignore[arg-type]

    while True:
        before = story
        story = tuple(_fewest(story, fails))
        for index, step in enumerate(story):
            for simpler in _simpler(step, lambda other, i=index, s=story: fails((*s[:i], other, *s[i + 1 :]))):
                story = (*story[:index], simpler, *story[index + 1 :])
        if story == before:
            return story


def _simpler(step: object, fails: Callable[[object], bool]) -> Iterator[object]:
    """Return a simpler form of a step, if there is one."""
    if isinstance(step, Update):
        step = Update(tuple(_fewest(step.operations, lambda rest: bool(rest) and fails(Update(tuple(rest))))))
        for index in range(len(step.operations)):
            first, rest = step.operations[:index], step.operations[index + 1 :]
            words = _fewest(
                step.operations[index].split(" "),
                lambda fewer, f=first, r=rest: fails(Update((*f, " ".join(fewer), *r))),
            )
            step = Update((*first, " ".join(words), *rest))
        yield step
    elif isinstance(step, Subscribe):
        bare = replace(step.query, default_graphs=None, named_graphs=None)
        query = bare if fails(replace(step, query=bare)) else step.query
        words = query.text.removeprefix(PREFIX).split(" ")
        if not query.inputs:
            words = _fewest(
                words, lambda fewer: fails(Subscribe(step.name, replace(query, text=PREFIX + " ".join(fewer))))
            )
        yield Subscribe(step.name, replace(query, text=PREFIX + " ".join(words)))


def _fewest(parts: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return as few of the parts as still fail. Runs of parts are left out, ever shorter ones, at every position."""
    parts = list(parts)
    run = len(parts)
    while run:
        start = 0
        while start < len(parts):
            fewer = parts[:start] + parts[start + run :]
            if fails(fewer):
                parts = fewer
            else:
                start += max(run // SHORT, 1)
        run = run // 2 if run > SHORT else run - 1
    return parts


def as_test(story: Story) -> str:
    """Return the story as Python code."""
    lines = ["def test_():", "    world = World()"]
    for step in story:
        if isinstance(step, Update):
            texts = ", ".join(map(_quoted, step.operations))
            lines.append(f"    world.update([{texts}], PREFIX)")
        elif isinstance(step, Unsubscribe):
            lines.append(f"    world.unsubscribe({step.name!r})")
        else:
            query = step.query
            more = "".join(
                f", {name}={value!r}"
                for name in ("default_graphs", "named_graphs", "readable")
                if (value := getattr(query, name)) is not None
            )
            if query.inputs:
                more += f", inputs=PREFIX + {_quoted(query.inputs.removeprefix(PREFIX))}"
            lines.append(
                f"    world.subscribe(Query(PREFIX + {_quoted(query.text.removeprefix(PREFIX))}{more}), {step.name!r})"
            )
    return "\n".join([*lines, "    world.check_no_leak()"])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        received = draw(seed)
        failed = failure(received)
        print(f"# seed {seed}: {failed or 'does not fail'}")
        if failed:
            print(as_test(shrunk(received)))
