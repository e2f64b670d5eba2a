"""Modbus bus: a thread that polls the devices of one connection, and writes their commands."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from edge.adapters.modbus_device import PolledDevice, Up, contents, decoded, messages
from edge.adapters.serial_device import find
from edge.adapters.settings import ActuationSettings, ModbusSettings
from edge.backoff import Backoff, Retry
from edge.mapping.actuators import Command
from edge.mapping.modbus_devices import AVAILABLE, ModbusDevice, Register, TcpBus
from edge.mapping.modbus_polling import ReadRequest
from edge.mapping.modbus_values import Scalar
from edge.modbus_client import ModbusClient, NoResponse, Refused

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
_ATTEMPTS: Final = 2
"""Attempts of a request before the device counts as gone: a line loses a frame now and then."""
_LONGEST_WAIT: Final = 60.0
"""Seconds after which the thread looks for work without a wake-up."""
_BEHIND_GATEWAY: Final = (10, 11)
"""Exceptions with which a Modbus gateway says that it does not reach the device."""
_MOST_REQUESTS: Final = 10_000
"""Requests of one turn; more can come only of a defect."""
_ACKNOWLEDGED: Final = 5
"""Exception with which a device accepts a command that takes it some time."""
_BUSY: Final = 6
"""Exception with which a device asks to repeat a request later."""
_RELEASE: Final = 1.0
"""Seconds that the requests of a device that has come wait for the complete state of its actuators."""


class _NotConnected(NoResponse):
    """The bus cannot be connected; this was noted for all its devices."""


class Bus:
    """One connection and its devices. It reconnects forever, with back-off.

    A device that does not answer has a back-off of its own, and the others go on.
    """

    def __init__(
        self,
        devices: Sequence[ModbusDevice],
        settings: ModbusSettings,
        actuation: ActuationSettings,
        *,
        take: Callable[[str, bytes], None],
        refuse: Callable[[str, str, str, bytes], None],
        up: Up,
        written: Callable[[Command], None],
        given_up: Callable[[Command, bool], None],
        after: Sequence[Bus] = (),
    ) -> None:
        """`take` receives the topic and payload of values. `refuse` receives bad values: topic, source, reason, bytes.

        `written` is called when a device has accepted a command, `given_up` when it is not tried again; True: the
        device has refused it. It starts when the threads of the buses `after` have ended.
        """
        self.address = devices[0].bus
        self._settings = settings
        self._take = take
        self._refuse = refuse
        self._up = up
        self._written = written
        self._given_up = given_up
        self._after = after
        backoff = Backoff(settings.reconnect, settings.reconnect_max)
        now = time.monotonic()
        self.devices = [PolledDevice(each, backoff, actuation.rate, actuation.max_queued, now) for each in devices]
        self._registers = {each.name: {one.name: one for one in each.registers} for each in devices}
        self._client: ModbusClient | None = None
        self._retry = Retry(backoff)
        self._again = now
        self._stopping = threading.Event()
        self._wake_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"edge-modbus-{self.address}"[:60], daemon=True)

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start to connect and poll. Returns at once."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread; a request that waits for a response ends first, or is left alone after `timeout` seconds."""
        self._stopping.set()
        self._wake_up.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def put(self, device: PolledDevice, command: Command, interval: float) -> bool:
        """Queue a command; its register then pauses for `interval` seconds. False: the queue is full."""
        taken = device.commands.put(command, interval)
        self._wake_up.set()
        return taken

    # Everything below runs on the thread of the bus

    def _run(self) -> None:
        for bus in self._after:
            bus._thread.join()  # two connections would mix up their requests on the line
        self._after = ()
        while not self._stopping.is_set():
            try:
                pause = self._turn()
            except Exception:  # noqa: BLE001  a defect in one poll must not end the thread
                _log.exception("modbus.fault", extra={"bus": str(self.address)})
                pause = self._settings.reconnect_max
            self._wake_up.wait(min(pause, _LONGEST_WAIT))
            self._wake_up.clear()
        if self._client is not None:
            self._client.close()

    def _turn(self) -> float:
        """Make the requests that are due. Returns the seconds until the next ones."""
        for device in self.devices:
            now = time.monotonic()
            if self._stopping.is_set() or now < self._again:
                break
            if device.ready(now):
                self._send(device)
                self._poll(device)
        now = time.monotonic()
        return max(self._again - now, min(device.wait(now) for device in self.devices))

    def _poll(self, device: PolledDevice) -> None:
        values: dict[str, Scalar] = {}
        answers = False  # whether the request before was answered
        for request in device.due(time.monotonic())[:_MOST_REQUESTS]:
            if self._stopping.is_set() or not device.ready(time.monotonic()):
                break
            try:
                values |= self._read(device, request)
            except _NotConnected:
                break
            except NoResponse as error:
                if self._stopping.is_set():
                    break
                if not answers:
                    self._lose(device, str(error), request)
                    break
                answers = False
                if device.unanswered(request, time.monotonic()):
                    self._report(device, request, str(error))
            else:
                answers = True
            for each in self.devices:  # a command does not wait for the other values
                self._send(each)
        else:
            device.completed()
        if values and not self._stopping.is_set():
            device.polls += 1
            for message in messages(values):
                self._take(device.device.topic, message)

    def _read(self, device: PolledDevice, request: ReadRequest) -> dict[str, Scalar]:
        """Return the values of a request, if it is not refused. Raises `NoResponse`."""
        unit_id = device.device.spec.unit_id
        try:
            found = self._request(
                device, lambda client: client.read(unit_id, request.table, request.address, request.count)
            )
        except Refused as error:
            if device.refused(request, error.code):
                self._report(device, request, str(error))
            return {}
        device.accepted(request)
        return decoded(request, found, self._registers[device.device.name])

    def _send(self, device: PolledDevice) -> None:
        """Write the commands that are due."""
        while not self._stopping.is_set() and device.ready(now := time.monotonic()) and now >= self._again:
            command = device.commands.due(now)
            if command is None:
                return
            register = device.device.register(command.topic)
            if register is None:
                self._fail(device, command, "the device has no such register that can be written", final=False)
            elif not self._write(device, register, command):
                return

    def _write(self, device: PolledDevice, register: Register, command: Command) -> bool:
        """Write a command. Returns whether it is done with."""
        unit_id, function = device.device.spec.unit_id, register.function or 0
        try:
            values = contents(register, command)
            self._request(device, lambda client: client.write(unit_id, function, register.address, values))
        except _NotConnected:
            device.commands.put_back(command.topic)
            return False
        except NoResponse as error:
            self._lose(device, str(error))
            for lost in device.commands.lost():
                self._fail(device, lost, "the device went whenever this was written", final=False)
            return False
        except Refused as error:
            if error.code == _BUSY:
                device.commands.postpone(command.topic, time.monotonic())
                return False
            if error.code != _ACKNOWLEDGED:
                self._fail(device, command, str(error), final=True)
                return True
        except ValueError as error:
            self._fail(device, command, str(error), final=True)
            return True
        device.commands.sent += 1
        device.commands.done(command.topic)
        self._written(command)
        return True

    def _fail(self, device: PolledDevice, command: Command, reason: str, *, final: bool) -> None:
        """Give up a command. `final`: it would be refused again."""
        device.commands.done(command.topic)
        device.commands.failed += 1
        self._refuse(command.topic, command.actuator, reason, command.payload)
        self._given_up(command, final)

    def _request(self, device: PolledDevice, function: Callable[[ModbusClient], Result]) -> Result:
        """Return the result of a request. Raises `NoResponse` or `Refused`."""
        for attempt in range(_ATTEMPTS):
            client = self._connected()
            client.set_timeout(float(device.device.spec.timeout or self._settings.timeout))
            try:
                result = function(client)
            except Refused as error:
                if error.code not in _BEHIND_GATEWAY:
                    self._answered(device)
                    raise
                reason = str(error)
            except NoResponse as error:
                reason = str(error)
            else:
                self._answered(device)
                return result
            if attempt + 1 == _ATTEMPTS or self._stopping.is_set():
                break
        raise NoResponse(reason)

    def _lose(self, device: PolledDevice, reason: str, request: ReadRequest | None = None) -> None:
        """Note that a device does not answer."""
        if not self._stopping.is_set() and device.failed(reason, time.monotonic(), request):
            self._gone(device)

    def _connected(self) -> ModbusClient:
        """Return the open connection. Raises `NoResponse` after noting the failure for all devices."""
        try:
            if self._client is None:
                self._client = self._open()
            if not self._client.connected:
                self._client.connect()
        except Exception as error:  # noqa: BLE001  no error of a driver may end this thread
            self._client = None  # a USB device may come back at another path
            if self._stopping.is_set():
                raise _NotConnected(str(error)) from None
            self._again = time.monotonic() + self._retry.failed()
            reason = str(error) or type(error).__name__
            for device in self.devices:
                if device.unreachable(reason, self._again):
                    self._gone(device)
            raise _NotConnected(reason) from None
        self._retry.succeeded()
        return self._client

    def _open(self) -> ModbusClient:
        address, timeout = self.address, self._settings.timeout
        if isinstance(address, TcpBus):
            return ModbusClient.tcp(address.host, address.port, address.framing, timeout)
        return ModbusClient.line(find(address.device), address.baud, address.parity, address.stop_bits, timeout)

    def _answered(self, device: PolledDevice) -> None:
        if self._stopping.is_set() or not device.answered():
            return
        name = device.device.name
        _log.info("modbus.up", extra={"device": name, "bus": str(self.address)})
        self._take(f"{device.device.topic}/{AVAILABLE}", b"online")

        released = threading.Event()

        def release() -> None:
            device.commands.held = False
            released.set()
            self._wake_up.set()

        device.commands.held = True
        self._up(device.device, release)
        released.wait(_RELEASE)  # the next request may have no response, and commands would wait for its timeout

    def _gone(self, device: PolledDevice) -> None:
        device.commands.held = True
        _log.warning("modbus.down", extra={"device": device.device.name, "reason": device.reason})
        self._take(f"{device.device.topic}/{AVAILABLE}", b"offline")

    def _report(self, device: PolledDevice, request: ReadRequest, reason: str) -> None:
        """Report a refused request once, until it succeeds or is refused for another reason."""
        names = ", ".join(value.name for value in request.values)
        place = f"{request.table} {request.address}"
        _log.warning("modbus.refused", extra={"device": device.device.name, "values": names, "reason": reason})
        self._refuse(device.device.topic, "modbus", f"{names} ({place}): {reason}", place.encode())
