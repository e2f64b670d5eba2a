"""Listening TCP sockets that strangers cannot use up: what they take has an end before anybody knows who they are."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import ipaddress
import logging
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from edge.garbage import cycles

AT_ONCE: Final = 8
"""Connections accepted before others have their turn (`backlog` of asyncio's `create_server`): each needs a handshake,
and who has begun one comes before who has not."""
HANDSHAKE: Final = 10.0
"""Seconds that a client has for the TLS handshake."""
_QUEUE: Final = 128
"""Connections that wait in the kernel."""
_STRANGERS: Final = 100
"""Connections of strangers that there is room for at the least; with TLS each takes 0.3 MB."""
_SELECT: Final = 1024
"""Descriptors that `select` can look at (FD_SETSIZE); the MQTT client library uses it."""
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_DISCONNECTED: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.EPIPE,
        errno.ESHUTDOWN,
        errno.ETIMEDOUT,
    }
)
"""What system calls report of a connection that the client, or the network, has ended."""
_QUIET: Final = 10.0
"""Seconds between two log lines on connections that were turned away."""

_log = logging.getLogger(__name__)


@lru_cache(maxsize=256)
def is_local(host: str) -> bool:
    """Whether an address is this machine's own, which all its programs share."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_disconnect(error: BaseException | None) -> bool:
    """Whether an error only says that a connection is lost, which clients cause and no operator can change."""
    return isinstance(error, ConnectionError) or (isinstance(error, OSError) and error.errno in _DISCONNECTED)


def ignore_disconnects(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Exception handler of an event loop: lost connections are logged at level debug, without a traceback."""
    error = context.get("exception")
    if is_disconnect(error):
        _log.debug("listener.disconnected", extra={"reason": str(error)})
    else:
        loop.default_exception_handler(context)


def use_all_descriptors() -> int:
    """Have this process use as many descriptors as it may. Returns how many connections of clients that leaves."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a system that does not keep its word
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit, own = _descriptors()
    return limit - own


def _descriptors() -> tuple[int, int]:
    """How many this process may use, and how many of them are not for clients but for files, other processes, and the
    gateway's own connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit, min(_SELECT, limit // 4)


class Listener(socket.socket):
    """Where a gate listens; `sock` of asyncio's `create_server`.

    A connection of another machine is a stranger's until the gate says that it knows what it wants (`known`). There is
    room for a quarter as many strangers as connections; when it is full the one goes who has waited longest, of the
    address that has most, or the new one if it is of such an address itself. Who is known, and this machine's own, may
    have a tenth more connections than the gate serves, and this machine a few beyond that: these it tells so. What is
    beyond is closed.
    """

    def __init__(self, host: str, port: int, most: int, most_of_one: int) -> None:
        """Bind. `most`: connections that the gate serves, and of one address. Raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family)
        # asyncio leaves Nagle's algorithm on for connections of a socket that was made so, and every answer but the
        # first of a connection would wait 40 ms for a delayed acknowledgement. They inherit this option.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self._most = most + most // 10 + 1
        self._most_of_one = most_of_one + most_of_one // 10 + 1
        self._room = max(_STRANGERS, most // 4)
        _, self._lowest = _descriptors()
        self._strangers: dict[Any, _Connection] = {}
        """By address, the oldest first."""
        self._known = 0
        self._of_one: Counter[str] = Counter()
        self._turned_away = 0
        self._told_at = self._exhausted_at = float("-inf")

    @property
    def port(self) -> int:
        """The TCP port, also where any was asked for."""
        return int(self.getsockname()[1])

    def listen(self, _backlog: int = 0) -> None:
        """Begin. asyncio's `backlog` is also how many it accepts in a row, which is another matter."""
        super().listen(_QUEUE)

    @contextlib.contextmanager
    def closed_on_failure(self) -> Iterator[None]:
        """Close it where a gate fails to begin to serve on it, or is cancelled meanwhile; asyncio leaves it open."""
        try:
            yield
        except BaseException:
            if self.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(self)
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that may come in. Raises `BlockingIOError` where there is none."""
        for _ in range(AT_ONCE):
            try:
                plain, address = super().accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._exhausted()
                if error.errno != errno.EINVAL:
                    raise
                self._deaf()
                break
            connection = self._let_in(plain, address)
            if connection is not None:
                return connection, address
        raise BlockingIOError(errno.EAGAIN, "others have their turn")

    def known(self, address: Any) -> None:  # noqa: ANN401 - of whatever family
        """The gate knows what the client at an address (`peername` of its transport) wants."""
        connection = self._strangers.pop(address, None)
        if connection is not None:
            self._known += 1
            connection.stranger = False

    def _let_in(self, plain: socket.socket, address: Any) -> _Connection | None:  # noqa: ANN401
        host: str = address[0]
        local = is_local(host)
        with plain:
            descriptor = self._descriptor(plain) if self._serves(host, local) else None
        if descriptor is None:
            self._turn_away(host)
            return None
        cycles.connected()
        connection = _Connection(self.family, self.type, self.proto, descriptor)
        connection.peer = address
        connection.stranger = not local
        connection.gone = lambda: self._gone(connection, address, local)
        if local:
            self._known += 1
        else:
            self._of_one[host] += 1
            self._strangers[address] = connection
        return connection

    def _serves(self, host: str, local: bool) -> bool:
        if local:
            return self._known < self._most + AT_ONCE
        return self._known < self._most and self._of_one[host] < self._most_of_one and self._has_room(host)

    def _descriptor(self, plain: socket.socket) -> int | None:
        """One that is for clients; None: all are in use."""
        try:
            return fcntl.fcntl(plain, fcntl.F_DUPFD_CLOEXEC, self._lowest)
        except OSError:
            return None

    def _has_room(self, host: str) -> bool:
        """Whether there is room for one more stranger of an address; it may have to be made."""
        if len(self._strangers) < self._room:
            return True
        of_one = Counter(address[0] for address in self._strangers)
        crowd, most = of_one.most_common(1)[0]
        if of_one[host] >= most:
            return False
        oldest = next(address for address in self._strangers if address[0] == crowd)
        connection = self._strangers[oldest]
        self._turn_away(crowd)
        self.known(oldest)
        with contextlib.suppress(OSError):  # it has gone itself
            connection.shutdown(socket.SHUT_RDWR)
        return True

    def _gone(self, connection: _Connection, address: Any, local: bool) -> None:  # noqa: ANN401
        if connection.stranger:
            self._strangers.pop(address, None)
        else:
            self._known -= 1
        if not local:
            self._of_one[address[0]] -= 1
            if not self._of_one[address[0]]:
                del self._of_one[address[0]]

    def _turn_away(self, host: str) -> None:
        self._turned_away += 1
        now = time.monotonic()
        if now - self._told_at >= _QUIET:
            about = {"port": self.port, "from": host, "connections": self._turned_away}
            _log.warning("listener.turned_away", extra=about)
            self._told_at, self._turned_away = now, 0

    def _deaf(self) -> None:
        """The socket does not listen any more, and stays readable: asyncio would ask, and log, 10,000 times a second.

        The watchdog opens the port again.
        """
        asyncio.get_running_loop().remove_reader(self)
        _log.error("listener.deaf", extra={"port": self.port})

    def _exhausted(self) -> None:
        """asyncio writes a line for each time that there are no descriptors, and looks again after a second."""
        now = time.monotonic()
        if now - self._exhausted_at < 1:
            raise BlockingIOError(errno.EAGAIN, "nothing has changed")
        self._exhausted_at = now


class _Connection(socket.socket):
    """A connection that tells when it is closed, and takes no harm from a client that closes it at any time."""

    stranger = False
    peer: Any = None
    """The client's address, as `accept` reported it."""
    gone: Callable[[], None] | None = None

    def getpeername(self) -> Any:  # noqa: ANN401 - of whatever family
        """The client's address, also after a reset, when the system does not know it any more (ENOTCONN)."""
        return self.peer

    def shutdown(self, how: int) -> None:
        """Shut down; no error if the client was faster. `write_eof` of asyncio would raise it in any callback."""
        try:
            super().shutdown(how)
        except OSError as error:
            if not is_disconnect(error):
                raise

    def close(self) -> None:
        super().close()
        gone, self.gone = self.gone, None
        if gone is not None:
            gone()
