"""Pending requests of a session with a single response: updates, queries, and requests about delayed updates.

All methods are called on the event loop. Answers arrive through the dispatcher, in engine order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar

from edge.engine.requests import Answer, Dataset, QueryRequest, UpdateOutcome, UpdateRequest
from edge.gates.rate_limit import client_of
from edge.gates.responses import Responses
from edge.gates.result_limit import ResultLimit, as_results
from edge.gates.sessions import Sessions
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, RequestTimeout
from edge.protocol.messages import (
    CancelMessage,
    QueryMessage,
    TimerMessage,
    TimersMessage,
    UpdateMessage,
    cancelled_message,
    result_message,
    scheduled_message,
    timer_message,
    timers_message,
    updated_message,
)

T = TypeVar("T")

AskMessage = UpdateMessage | QueryMessage | TimersMessage | TimerMessage | CancelMessage


def ask(responses: Responses, request: AskMessage, access: Access, started: float) -> None:
    """Pass a request to the engine and respond when it has answered. Raises errors that the engine detects at once."""

    def answer(future: Future[T], to_message: Callable[[T], str], status: int = 200) -> None:
        _PendingRequest(responses, request, started, future, to_message, status).start()

    engine, alias, who = responses.shared.engine, request.alias, client_of(access, responses.peer)
    try:
        if isinstance(request, UpdateMessage):
            update = UpdateRequest(
                request.sparql,
                Dataset.of(request.using_graph_uri, request.using_named_graph_uri),
                access=access,
                source=who,
            )
            when = request.when
            if when is None:
                answer(engine.update([update]), lambda outcomes: updated_message(alias, *_counts(outcomes)))
            else:
                answer(
                    engine.schedule(update, when, request.id),
                    lambda scheduled: scheduled_message(alias, scheduled.to_message()),
                    202,
                )
        elif isinstance(request, QueryMessage):
            read = partial(_read, responses.shared, request, access, who)
            responses.evaluate(lambda: answer(read(), lambda result: result_message(alias, result)))
        elif isinstance(request, TimersMessage):
            answer(
                engine.timers(request.state, request.limit, access),
                lambda timers: timers_message(alias, [timer.to_message() for timer in timers]),
            )
        elif isinstance(request, TimerMessage):
            future = engine.timer(request.id, access, request.client)
            answer(future, lambda timer: timer_message(alias, timer.to_message()))
        else:
            answer(engine.cancel(request.id, access, request.client), lambda _: cancelled_message(alias, request.id))
    except EdgeError as error:
        raise error.with_alias(alias) from error


def _counts(outcomes: list[UpdateOutcome]) -> tuple[int, int, int]:
    (outcome,) = outcomes
    return outcome.added, outcome.removed, outcome.entries


def _read(shared: Sessions, request: QueryMessage, access: Access, who: str) -> Future[str]:
    dataset = Dataset.of(request.default_graph_uri, request.named_graph_uri)
    limits = shared.limits

    def read(answer: Answer) -> str:
        return as_results(answer, ResultLimit(limits.max_result, limits.query_timeout, f"{shared.section}.max_result"))

    return shared.engine.read(QueryRequest(request.sparql, dataset, access, who), read)


class _PendingRequest(Generic[T]):
    """A pending request. It is executed even if the client disconnects; a query has a time limit."""

    def __init__(
        self,
        responses: Responses,
        request: AskMessage,
        started: float,
        future: Future[T],
        to_message: Callable[[T], str],
        status: int,
    ) -> None:
        """`to_message`: formats the engine's answer as a message; `status`: status for the metrics."""
        self._responses = responses
        self._request = request
        self._started = started
        self._future: Future[T] | None = future
        self._to_message = to_message
        self._status = status
        self._expired = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send the response when the engine has answered."""
        responses, shared = self._responses, self._responses.shared
        if isinstance(self._request, QueryMessage):
            self._timer = asyncio.get_running_loop().call_later(shared.limits.query_timeout, self._expire)
        else:
            responses.begun()
        assert self._future is not None  # noqa: S101
        self._future.add_done_callback(partial(shared.bridge.put, self._done))

    def _expire(self) -> None:
        self._expired = True
        seconds = self._responses.shared.limits.query_timeout
        error = RequestTimeout(
            f"The query took longer than {seconds:g} s, the limit engine.query_timeout; ask for less",
            alias=self._request.alias,
        )
        self._responses.refuse(error, self._request.kind, self._started)
        if self._future is not None:
            self._future.cancel()

    def _done(self, future: Future[T]) -> None:
        # break the reference cycle, which would keep a large result until the garbage collector runs
        self._future = None
        if self._timer is not None:
            self._timer.cancel()
        if not self._expired and not future.cancelled():
            self._respond(future)
        if isinstance(self._request, QueryMessage):
            self._responses.evaluated()
        else:
            self._responses.done()

    def _respond(self, future: Future[T]) -> None:
        responses = self._responses
        failure = future.exception()
        if failure is not None:
            to_message = responses.shared.as_error(failure, self._request.alias)
            responses.refuse(to_message, self._request.kind, self._started)
            return
        responses.outgoing.send(self._to_message(future.result()))
        responses.shared.answered(self._request.kind, self._status, self._started)
