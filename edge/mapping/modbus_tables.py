"""Compiler of the Modbus devices of one file: each is a device to poll, and mappings of its values."""

from __future__ import annotations

import re
from dataclasses import replace

from edge.mapping.compiling import MappingCompiler
from edge.mapping.errors import BadKeyError, Fault, FaultsOfTable
from edge.mapping.fault_reasons import because
from edge.mapping.modbus_devices import LineBus, ModbusDevice, availability_mapping, modbus_device, value_mapping
from edge.mapping.modbus_model import ModbusSpec
from edge.mapping.model import ReadingKeys
from edge.mapping.rules import CompiledMapping


class ModbusCompiler:
    """Compiles the Modbus devices of one file with the compiler of its mappings. `defaults`: those of the file."""

    def __init__(self, compiler: MappingCompiler, defaults: ReadingKeys) -> None:
        self._compiler = compiler
        self._defaults = defaults
        self.devices: list[ModbusDevice] = []
        """The devices without faults."""
        self.mappings: list[CompiledMapping] = []
        """The mappings of their values."""

    def compile(self, spec: ModbusSpec, place: Fault, faults: FaultsOfTable) -> None:
        """Compile one device. Adds its faults to `faults`."""
        if spec.name in [device.name for device in self.devices]:
            faults.add(BadKeyError(because("device_taken"), key="name"))
        device = modbus_device(spec, self._defaults, place, faults)
        if device is not None:
            faults.attempt(lambda: check_line(device, self.devices))
        specs = [value_mapping(spec, self._defaults), availability_mapping(spec)] if spec.registers else []
        mappings = []
        for each in specs:
            found = FaultsOfTable()
            mapping = self._compiler.compile(each, found)
            mappings += [mapping] if mapping is not None else []
            errors = map(_of_register, found.found)
            faults.found += [
                error for error in errors if self._is_new(error, spec, faults, complete=device is not None)
            ]
        if device is not None and not faults.fatal:
            self.devices.append(device)
            self.mappings += mappings

    @staticmethod
    def _is_new(error: BadKeyError, spec: ModbusSpec, faults: FaultsOfTable, *, complete: bool) -> bool:
        """Whether a fault is to be reported. Keys that the gateway has added have warnings that are not for the author,
        and faults that follow from other ones (`complete`: the device has no fault).
        """
        if any(error.fault == known.fault for known in faults.found):
            return False
        return (complete and not error.warning) or _is_of_author(error, spec)


def check_line(device: ModbusDevice, others: list[ModbusDevice]) -> None:
    """Raise `BadKeyError` if another device has the same serial line with other settings."""
    for other in others:
        lines = isinstance(device.bus, LineBus) and isinstance(other.bus, LineBus)
        if lines and device.spec.device == other.spec.device and device.bus != other.bus:
            reason = f'"{other.name}" has the same line with another speed, parity or number of stop bits.'
            raise BadKeyError(reason, key="device")


def _of_register(error: BadKeyError) -> BadKeyError:
    """Return a fault of a reading as one of its register."""
    key = error.fault.key
    if key is not None and key.startswith("readings["):
        key = re.sub(r"\.set\b", ".write", f"registers[{key.removeprefix('readings[')}")
        error.fault = replace(error.fault, key=key)
    return error


def _is_of_author(error: BadKeyError, spec: ModbusSpec) -> bool:
    """Whether the author wrote the key, and not the gateway."""
    if error.of_defaults:
        return True
    steps = re.findall(r"[^.\[\]]+", error.fault.key or "")
    if steps[:1] == ["registers"] and len(steps) > 2:
        return steps[2] in spec.registers[int(steps[1])].model_fields_set
    return steps[:1] == [] or steps[0] in spec.model_fields_set
