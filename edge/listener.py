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

    A remote connection is unauthenticated until the gate calls `mark_known`. The quota of unauthenticated connections
    is a quarter of all. When it is full, the oldest one of the address with most of them is closed, or the new one if
    it has this address itself. Known clients and this machine may use a tenth more connections than the gate serves,
    and this machine a few more, so that the gate can send them an error. Beyond that, a new connection replaces one
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
        self._without_header: dict[Any, _Connection] = {}
        """Known and local connections without a complete request header, by address, the oldest first."""
        self._without_body: dict[Any, _Connection] = {}
        """Those with a complete header and an incomplete body."""
        self._replaced: dict[Any, _Connection] = {}
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
        return self._known - len(self._without_header) - len(self._without_body)

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

    def mark_known(self, address: Any, *, complete: bool = True) -> bool:  # noqa: ANN401 - of whatever family
        """Mark the connection from this address (`peername` of its transport) as known.

        `complete`: whether its first request has arrived as a whole; otherwise call it again then. Returns False if a
        newer connection has replaced this one: the gate must drop the request, which the system may still deliver.
        """
        connection = self._unauthenticated.pop(address, None)
        if connection is not None:
            self._known += 1
            connection.unauthenticated = False
        else:
            connection = self._without_header.pop(address, None)
        if complete:
            self._without_body.pop(address, None)
        elif connection is not None:
            self._without_body[address] = connection
        return address not in self._replaced

    def set_abort(self, address: Any, abort: Callable[[], None]) -> None:  # noqa: ANN401
        """Register `abort` of the connection's transport, which ends it when a newer connection replaces it.

        Without it, the socket is shut down, which a transport does not notice while its reading is paused.
        """
        if address in self._replaced:
            abort()
            return
        for connections in (self._unauthenticated, self._without_header, self._without_body):
            if address in connections:
                connections[address].abort = abort

    def _let_in(self, plain: socket.socket, address: Any) -> _Connection | None:  # noqa: ANN401
        host: str = address[0]
        local = is_local(host)
        with plain:
            descriptor = self._descriptor(plain) if self._serves(host, local) else None
        if descriptor is None:
            self._turn_away(host)
            return None
        cycle_collection.connected()
        self._replaced.pop(address, None)  # the client has ended that connection, and uses its port again
        connection = _Connection(self.family, self.type, self.proto, descriptor)
        connection.peer = address
        connection.unauthenticated = not local
        connection.gone = lambda: self._gone(connection, local)
        if local:
            self._known += 1
            self._without_header[address] = connection
        else:
            self._of_one[host] += 1
            self._unauthenticated[address] = connection
        return connection

    def _serves(self, host: str, local: bool) -> bool:
        """Return whether there is a slot for a new connection; may close others for it."""
        others = self._others_to_close(host, local)
        if others is None:
            return False
        for connection in others:
            self._replace(connection)
        return True

    def _others_to_close(self, host: str, local: bool) -> list[_Connection] | None:
        """Return the connections that a new one of this address replaces; None if there is no slot for it."""
        if not local and self._of_one[host] >= self._most_of_one:
            return None
        others: list[_Connection | None] = []
        if not local and len(self._unauthenticated) >= self._unauthenticated_slots:
            others.append(self._oldest_of_another(host))
        if self._known >= self._most + (AT_ONCE if local else 0):
            others.append(self._oldest_incomplete())
        found = [connection for connection in others if connection is not None]
        if len(found) < len(others) or (found and self._closing + len(found) > _CLOSING):
            return None
        return found

    def _descriptor(self, plain: socket.socket) -> int | None:
        """Return a descriptor for a client, or None if all are in use."""
        try:
            # At least `_lowest`: the descriptors below it stay free for files and for `select`.
            return fcntl.fcntl(plain, fcntl.F_DUPFD_CLOEXEC, self._lowest)
        except OSError:
            return None

    def _oldest_of_another(self, host: str) -> _Connection | None:
        """Return the oldest unauthenticated connection of the address with most of them; None if it is this one."""
        of_one = Counter(address[0] for address in self._unauthenticated)
        busiest, most = of_one.most_common(1)[0]
        if of_one[host] >= most:
            return None
        return next(connection for address, connection in self._unauthenticated.items() if address[0] == busiest)

    def _oldest_incomplete(self) -> _Connection | None:
        """Return the oldest connection without a complete request, of the larger group.

        Silent connections thus replace each other, and not uploads. But connections with half a body, which are free
        for any client, leave others the time to send a header.
        """
        larger = max(self._without_header, self._without_body, key=len)  # the first one if they are equal
        return next(iter(larger.values()), None)

    def _replace(self, connection: _Connection) -> None:
        address = connection.peer
        self._forget(connection)
        connection.replaced = True
        self._replaced[address] = connection
        self._closing += 1
        self._turn_away(address[0])
        connection.disconnect()

    def _gone(self, connection: _Connection, local: bool) -> None:
        self._forget(connection)
        host = connection.peer[0]
        if not local:
            self._of_one[host] -= 1
            if not self._of_one[host]:
                del self._of_one[host]

    def _forget(self, connection: _Connection) -> None:
        """Remove the connection from all counts except that of its address."""
        if connection.replaced:
            self._closing -= 1
        elif not connection.unauthenticated:
            self._known -= 1
        for connections in (self._unauthenticated, self._without_header, self._without_body, self._replaced):
            # The client may have a newer connection from the same port.
            if connections.get(connection.peer) is connection:
                del connections[connection.peer]

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
    abort: Callable[[], None] | None = None
    """Method of the transport; None until the gate has registered it."""

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

    def disconnect(self) -> None:
        """End the connection soon, in whatever state its transport is."""
        if self.abort is not None:
            self.abort()
            return
        with contextlib.suppress(OSError):  # it was closed by the client
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        self.abort = None  # refers to the transport, which refers to this socket
        # Once only: `close` may be called again.
        gone, self.gone = self.gone, None
        if gone is not None:
            gone()
