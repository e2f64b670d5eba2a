"""A TCP relay between two machines that can cut connections after a number of bytes."""

import contextlib
import socket
import threading


class Relay:
    """A relay that listens on a port of its own while it is open."""

    def __init__(self, target):
        self.target = target
        self.left = None
        """Bytes that clients can still send before all connections are cut; None: no limit."""
        self.passed = 0
        """Bytes from clients so far."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in [self._thread, *self._threads]:
            thread.join(20)
            assert not thread.is_alive()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self.target)
                except OSError:
                    near.close()
                    continue
                for thread in (
                    threading.Thread(target=self._pass, args=(near, far, True)),
                    threading.Thread(target=self._pass, args=(far, near, False)),
                ):
                    self._threads.append(thread)
                    thread.start()

    def _pass(self, source, sink, counts):
        with source, contextlib.suppress(OSError):
            while data := source.recv(4096):
                if counts:
                    if self.left is not None:
                        data, self.left = data[: self.left], self.left - len(data[: self.left])
                    self.passed += len(data)
                sink.sendall(data)
                if counts and self.left == 0:
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
