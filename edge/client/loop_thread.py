"""Event loop in its own thread, for programs without asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from edge.client.errors import Closed

T = TypeVar("T")


class LoopThread:
    """Runs coroutines on behalf of other threads, which wait for them."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the thread has ended."""
        return self._closed

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine and return its result. After `timeout` seconds cancel it: `TimeoutError`.

        Raises `RuntimeError` on the loop's own thread, because that would be a deadlock, and `Closed`.
        """
        if threading.current_thread() is self._thread or self._closed:
            work.close()  # avoids the warning "coroutine was never awaited"
            if self._closed:
                raise Closed("the client was closed")
            raise RuntimeError("called from the thread of the client's event loop: this would be a deadlock")
        future = asyncio.run_coroutine_threadsafe(_limited(work, timeout), self._loop)
        try:
            return future.result()
        except CancelledError:  # `close` cancels all coroutines
            raise Closed("the client was closed") from None
        except BaseException:  # also on Ctrl-C
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread. Running coroutines are cancelled first."""
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _limited(work: Coroutine[Any, Any, T], timeout: float | None) -> T:  # noqa: ASYNC109 - for other threads
    async with asyncio.timeout(timeout):
        return await work


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
