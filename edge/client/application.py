"""A program made of agents: what its profile says, and the code between."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from os import PathLike

from edge.client.aggregator import Aggregator, AggregatorHandler
from edge.client.brokers import Brokers
from edge.client.consumer import Consumer, DeltaHandler
from edge.client.handlers import Handler, call
from edge.client.options import Options
from edge.client.producer import Producer
from edge.client.results import Result
from edge.jsap import Profile, Value


class Application:
    """The agents of one program, which share one connection to each broker.

    `host` takes the place of all hosts in the profile. Exceptions of handlers are logged; with `stop_on_error` the
    first one ends `run`, which raises it. Raises `ProfileError`, `OSError`.
    """

    def __init__(
        self,
        profile: Profile | str | PathLike[str],
        *,
        host: str | None = None,
        options: Options | None = None,
        stop_on_error: bool = False,
    ) -> None:
        self.profile = profile if isinstance(profile, Profile) else Profile.load(profile)
        self._brokers = Brokers(options, host=host)
        self._stop_on_error = stop_on_error
        self._agents: list[Consumer] = []

    @property
    def connected(self) -> bool:
        """Whether the WebSockets of all brokers in use are open."""
        return self._brokers.connected

    async def query(self, name: str, **bindings: Value) -> Result:
        """Ask a query of the profile once. Raises `UnknownEntry`, `BindingError`, and what `Client.query` raises."""
        entry = self.profile.query(name)
        graphs = entry.graphs
        return await self._brokers.client(entry).query(
            entry.text(bindings), default_graphs=graphs.default, named_graphs=graphs.named
        )

    def producer(self, name: str) -> Producer:
        """A producer of this update. Raises `UnknownEntry`."""
        return Producer(self.profile, name, brokers=self._brokers)

    def consumer(self, name: str, **bindings: Value) -> Callable[[DeltaHandler], Consumer]:
        """Decorates a handler that takes a notification; its name is the consumer's from then on.

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
        """Decorates a handler that takes a notification and what updates; its name is the aggregator's from then on.

        `bindings` are those of the query. `repeat`: an update carried out twice does no harm, so that it is sent until
        it is answered. Raises `UnknownEntry`, `BindingError`.
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
        """Run the agents until Ctrl-C, SIGTERM or, with `main`, its end. `main` takes nothing.

        Plain handlers that run, and then updates under way, have five seconds to end; a second signal waits for
        nothing. Raises `Refused` where a broker takes no subscription, and what `main` raises.
        """
        asyncio.run(self._until_signal(main))

    async def serve(self, main: Handler | None = None) -> None:
        """`run` on an event loop that runs; cancel it to end it. An application runs once."""
        running = {asyncio.create_task(agent.run()) for agent in self._agents}
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
            await asyncio.gather(*running, return_exceptions=True)
            await asyncio.gather(*(agent.close() for agent in self._agents))
            await self._brokers.close()

    async def _until_signal(self, main: Handler | None) -> None:
        loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self.serve(main))
        # A loop in another thread than the main one gets no signals.
        with contextlib.suppress(ValueError, RuntimeError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, serving.cancel)  # the second one cancels the waiting at the end
        await asyncio.wait({serving})
        if not serving.cancelled():
            serving.result()
