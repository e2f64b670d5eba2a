"""Listening TCP sockets with a bound on unauthenticated connections."""

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

from edge.garbage import cycle_collection

AT_ONCE: Final = 8
"""Connections accepted in a row (`backlog` of asyncio's `create_server`).

Each needs a handshake, and begun handshakes take precedence over new connections.
"""
HANDSHAKE: Final = 10.0
"""Timeout of the TLS handshake in seconds."""
_QUEUE: Final = 128
"""Connections that wait in the kernel."""
_UNAUTHENTICATED: Final = 100
"""Least quota of unauthenticated connections; with TLS each takes 0.3 MB."""
_SELECT: Final = 1024
"""Largest descriptor that `select` supports (FD_SETSIZE); the MQTT client library uses it."""
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
"""Errors of system calls for a connection that the client, or the network, has ended."""
_CLOSING: Final = 8 * AT_ONCE
"""Connections that were closed for others and still have a descriptor: each needs some turns of the event loop."""
_LOG_INTERVAL: Final = 10.0
"""Seconds between two log lines about rejected connections."""

_log = logging.getLogger(__name__)


@lru_cache(maxsize=256)
def is_local(host: str) -> bool:
    """Return whether an address is one of this machine, which all its programs share."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_disconnect(error: BaseException | None) -> bool:
    """Return whether an error only reports a lost connection, which needs no action by an operator."""
    return isinstance(error, ConnectionError) or (isinstance(error, OSError) and error.errno in _DISCONNECTED)


def ignore_disconnects(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Exception handler of an event loop: log lost connections at level debug, without a traceback."""
    error = context.get("exception")
    if is_disconnect(error):
        _log.debug("listener.disconnected", extra={"reason": str(error)})
    else:
        loop.default_exception_handler(context)


def use_all_descriptors() -> int:
    """Raise the limit of descriptors as far as possible. Returns the number available for client connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # the system refuses the limit that it reported
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit, own = _descriptors()
    return limit - own


def _descriptors() -> tuple[int, int]:
    """Return the limit of descriptors, and how many are reserved.

    The reserved ones are for files, other processes and the gateway's own connections.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit, min(_SELECT, limit // 4)


class Listener(socket.socket):
    """Listening socket of a gate; `sock` of asyncio's `create_server`.

    A remote connection is unauthenticated until the gate calls `known`. The quota of unauthenticated connections is a
    quarter of all. When it is full, the oldest one of the address with most of them is closed, or the new one if it has
    this address itself. Known clients and this machine may use a tenth more connections than the gate serves, and this
    machine a few more, so that the gate can send them an error. Beyond that, a new connection replaces the oldest one
    that has not yet sent a complete request. If all have sent one, the new connection is closed.
    """

    def __init__(self, host: str, port: int, most: int, most_of_one: int) -> None:
        """Bind. `most`: connections that the gate serves, and of one address. Raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family)
        # asyncio does not disable Nagle's algorithm for connections of such a socket, and every answer except the
        # first of a connection would wait 40 ms for a delayed acknowledgement. Connections inherit this option.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self._most = most + most // 10 + 1
        self._most_of_one = most_of_one + most_of_one // 10 + 1
        self._unauthenticated_slots = max(_UNAUTHENTICATED, most // 4)
        _, self._lowest = _descriptors()
        self._unauthenticated: dict[Any, _Connection] = {}
        """Unauthenticated connections by address, the oldest first."""
        self._known = 0
        self._incomplete: dict[Any, _Connection] = {}
        """Known and local connections without a complete request, by address, the oldest first."""
        self._closing = 0
        """Connections that were replaced, and are not closed yet. They count nowhere else."""
        self._of_one: Counter[str] = Counter()
        self._turned_away = 0
        self._logged_at = self._exhausted_at = float("-inf")

    @property
    def port(self) -> int:
        """The TCP port, also for port 0 in the settings."""
        return int(self.getsockname()[1])

    @property
    def complete(self) -> int:
        """Number of open connections that have sent a complete request."""
        return self._known - len(self._incomplete)

    def listen(self, _backlog: int = 0) -> None:
        """Begin to listen. Ignores the backlog of asyncio, which also uses it as the number to accept in a row."""
        super().listen(_QUEUE)

    @contextlib.contextmanager
    def closed_on_failure(self) -> Iterator[None]:
        """Close the socket if the gate fails to start, or is cancelled meanwhile; asyncio leaves it open."""
        try:
            yield
        except BaseException:
            if self.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(self)
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next permitted connection. Raises `BlockingIOError` if there is none."""
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

    def mark_known(self, address: Any, *, complete: bool = True) -> None:  # noqa: ANN401 - of whatever family
        """Mark the connection from this address (`peername` of its transport) as known.

        `complete`: whether its first request has arrived as a whole; otherwise call it again then.
        """
        connection = self._unauthenticated.pop(address, None)
        if connection is not None:
            self._known += 1
            connection.unauthenticated = False
            self._incomplete[address] = connection
        if complete:
            self._incomplete.pop(address, None)

    def _let_in(self, plain: socket.socket, address: Any) -> _Connection | None:  # noqa: ANN401
        host: str = address[0]
        local = is_local(host)
        with plain:
            descriptor = self._descriptor(plain) if self._serves(host, local) else None
        if descriptor is None:
            self._turn_away(host)
            return None
        cycle_collection.connected()
        connection = _Connection(self.family, self.type, self.proto, descriptor)
        connection.peer = address
        connection.unauthenticated = not local
        connection.gone = lambda: self._gone(connection, address, local)
        if local:
            self._known += 1
            self._incomplete[address] = connection
        else:
            self._of_one[host] += 1
            self._unauthenticated[address] = connection
        return connection

    def _serves(self, host: str, local: bool) -> bool:
        if not local and (self._of_one[host] >= self._most_of_one or not self._has_slot(host)):
            return False
        return self._known < self._most + (AT_ONCE if local else 0) or self._replaces()

    def _descriptor(self, plain: socket.socket) -> int | None:
        """Return a descriptor for a client, or None if all are in use."""
        try:
            # At least `_lowest`: the descriptors below it stay free for files and for `select`.
            return fcntl.fcntl(plain, fcntl.F_DUPFD_CLOEXEC, self._lowest)
        except OSError:
            return None

    def _has_slot(self, host: str) -> bool:
        """Return whether the address may have one more unauthenticated connection; may close another one."""
        if len(self._unauthenticated) < self._unauthenticated_slots:
            return True
        of_one = Counter(address[0] for address in self._unauthenticated)
        busiest, most = of_one.most_common(1)[0]
        if of_one[host] >= most:
            return False
        oldest = next(address for address in self._unauthenticated if address[0] == busiest)
        connection = self._unauthenticated[oldest]
        self._turn_away(busiest)
        self.mark_known(oldest)
        self._disconnect(connection)
        return True

    def _replaces(self) -> bool:
        """Return whether a new connection may replace one without a complete request; disconnects the oldest."""
        if not self._incomplete or self._closing >= _CLOSING:
            return False
        address = next(iter(self._incomplete))
        connection = self._incomplete.pop(address)
        connection.replaced = True
        self._known -= 1
        self._closing += 1
        self._turn_away(address[0])
        self._disconnect(connection)
        return True

    def _disconnect(self, connection: _Connection) -> None:
        with contextlib.suppress(OSError):  # it was closed by the client
            connection.shutdown(socket.SHUT_RDWR)

    def _gone(self, connection: _Connection, address: Any, local: bool) -> None:  # noqa: ANN401
        if connection.replaced:
            self._closing -= 1
        elif connection.unauthenticated:
            self._unauthenticated.pop(address, None)
        else:
            self._known -= 1
            self._incomplete.pop(address, None)
        if not local:
            self._of_one[address[0]] -= 1
            if not self._of_one[address[0]]:
                del self._of_one[address[0]]

    def _turn_away(self, host: str) -> None:
        self._turned_away += 1
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL:
            about = {"port": self.port, "from": host, "connections": self._turned_away}
            _log.warning("listener.turned_away", extra=about)
            self._logged_at, self._turned_away = now, 0

    def _deaf(self) -> None:
        """Stop reading: the socket no longer listens but stays readable, which asyncio would log 10,000 times a second.

        The watchdog opens the port again.
        """
        asyncio.get_running_loop().remove_reader(self)
        _log.error("listener.deaf", extra={"port": self.port})

    def _exhausted(self) -> None:
        """Limit the log: asyncio writes a line each time that it finds no descriptors, and retries after a second."""
        now = time.monotonic()
        if now - self._exhausted_at < 1:
            raise BlockingIOError(errno.EAGAIN, "nothing has changed")
        self._exhausted_at = now


class _Connection(socket.socket):
    """Socket that reports its closing, and tolerates a client that disconnects at any time."""

    unauthenticated = False
    replaced = False
    """Whether a newer connection took its slot."""
    peer: Any = None
    """The client's address, as `accept` reported it."""
    gone: Callable[[], None] | None = None

    def getpeername(self) -> Any:  # noqa: ANN401 - of whatever family
        """Return the client's address, also after a reset, when the system no longer knows it (ENOTCONN)."""
        return self.peer

    def shutdown(self, how: int) -> None:
        """Shut down. Ignores a disconnected client: asyncio's `write_eof` would raise the error in any callback."""
        try:
            super().shutdown(how)
        except OSError as error:
            if not is_disconnect(error):
                raise

    def close(self) -> None:
        super().close()
        # Once only: `close` may be called again.
        gone, self.gone = self.gone, None
        if gone is not None:
            gone()
