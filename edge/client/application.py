"""Application: the agents of one profile and their handlers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from os import PathLike

from edge.client.aggregator import Aggregator, AggregatorHandler
from edge.client.brokers import Brokers
from edge.client.consumer import Consumer, DeltaHandler
from edge.client.errors import ClientError
from edge.client.handlers import Handler, call
from edge.client.options import Options
from edge.client.producer import Producer
from edge.client.remedies import explain
from edge.client.results import Result
from edge.jsap import Profile, Value


class Application:
    """The agents of one program, which share one connection to each broker.

    `host` replaces all hosts in the profile. `find_gateway`: use the gateway that `Client()` finds, as in `Brokers`.
    Exceptions of handlers are logged; with `stop_on_error` the first one ends
    `run`, which raises it. Raises `ProfileError`, `OSError`, `ValueError`.
    """

    def __init__(
        self,
        profile: Profile | str | PathLike[str],
        *,
        host: str | None = None,
        options: Options | None = None,
        find_gateway: bool = False,
        stop_on_error: bool = False,
    ) -> None:
        self.profile = profile if isinstance(profile, Profile) else Profile.load(profile)
        self._brokers = Brokers(options, host=host, find_gateway=find_gateway)
        self._stop_on_error = stop_on_error
        self._agents: list[Consumer] = []

    @property
    def connected(self) -> bool:
        """Whether the WebSockets of all brokers in use are open."""
        return self._brokers.connected

    async def query(self, name: str, **bindings: Value) -> Result:
        """Execute a query of the profile once. Raises `UnknownEntry`, `BindingError` and as `Client.query`."""
        entry = self.profile.query(name)
        graphs = entry.graphs
        return await self._brokers.client(entry).query(
            entry.text(bindings), default_graphs=graphs.default, named_graphs=graphs.named
        )

    def producer(self, name: str) -> Producer:
        """Return a producer for this update. Raises `UnknownEntry`."""
        return Producer(self.profile, name, brokers=self._brokers)

    def consumer(self, name: str, **bindings: Value) -> Callable[[DeltaHandler], Consumer]:
        """Decorate a handler of notifications. Its name then refers to the consumer.

        Raises `UnknownEntry`, `BindingError`.
        """

        def decorate(handler: DeltaHandler) -> Consumer:
            agent = Consumer(
                self.profile,
                name,
                bindings,
                handler=handler,
                brokers=self._brokers,
                stop_on_error=self._stop_on_error,
            )
            self._agents.append(agent)
            return agent

        return decorate

    def aggregator(
        self, query: str, update: str, *, repeat: bool = False, **bindings: Value
    ) -> Callable[[AggregatorHandler], Aggregator]:
        """Decorate a handler that takes a notification and a pipeline. Its name then refers to the aggregator.

        `bindings` are those of the query. `repeat` marks the update as idempotent, so that the client may send it again
        until it is answered. Raises `UnknownEntry`, `BindingError`.
        """

        def decorate(handler: AggregatorHandler) -> Aggregator:
            agent = Aggregator(
                self.profile,
                query,
                update,
                handler,
                bindings,
                repeat=repeat,
                brokers=self._brokers,
                stop_on_error=self._stop_on_error,
            )
            self._agents.append(agent)
            return agent

        return decorate

    def run(self, main: Handler | None = None) -> None:
        """Run the agents until Ctrl-C, SIGTERM or, with `main`, its end. `main` takes no arguments.

        Running plain handlers, and then updates in progress, have five seconds to end; a second signal ends the program
        at once. Raises `Refused` if a broker refuses a subscription, and the exceptions of `main`.
        """
        asyncio.run(self._until_signal(main))

    def main(self, main: Handler | None = None) -> None:
        """Run as the whole program: as `run`, but an error of a broker ends it with one line and exit code 1."""
        try:
            self.run(main)
        except ClientError as error:
            sys.exit(explain(error))

    async def serve(self, main: Handler | None = None) -> None:
        """The same as `run` on a running event loop; cancel it to end it. An application runs only once."""
        running = {asyncio.create_task(agent.run()) for agent in self._agents}
        done: set[asyncio.Task[None]] = set()
        leading = asyncio.create_task(call(main)) if main is not None else None
        if leading is not None:
            running.add(leading)
        try:
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if leading in done:
                    break
        finally:
            for task in running:
                task.cancel()
            # Also those that ended: several may have failed at the same time.
            await asyncio.gather(*done, *running, return_exceptions=True)
            await asyncio.gather(*(agent.close() for agent in self._agents))
            await self._brokers.close()

    async def _until_signal(self, main: Handler | None) -> None:
        loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self.serve(main))
        # Only the event loop of the main thread can handle signals.
        with contextlib.suppress(ValueError, RuntimeError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, serving.cancel)  # a second signal cancels the wait for the end
        await asyncio.wait({serving})
        if not serving.cancelled():
            serving.result()
