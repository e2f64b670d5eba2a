"""Model of the mapping file. The JSON schema is generated from it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from edge.mapping.modbus_model import ModbusSpec
from edge.mapping.model import ActuatorSpec, MappingSpec, ReadingKeys
from edge.mapping.serial_model import SerialSpec
from edge.mapping.toml_table import Table


class FileSpec(Table):
    """A mapping file."""

    description: str | None = Field(default=None, description="Purpose of the file.")
    namespaces: dict[str, str] = Field(default_factory=dict, description="Prefixes for CURIEs.")
    units: dict[str, str] = Field(
        default_factory=dict, description="Unit codes of payloads to units, for all mappings."
    )
    defaults: ReadingKeys = Field(
        default_factory=lambda: ReadingKeys(), description="Defaults of all mappings of the file."
    )
    mapping: list[MappingSpec] = Field(default_factory=list, description="The mappings.")
    actuator: list[ActuatorSpec] = Field(default_factory=list, description="The actuators: from the graph to messages.")
    serial: list[SerialSpec] = Field(default_factory=list, description="The serial ports that messages come in by.")
    modbus: list[ModbusSpec] = Field(default_factory=list, description="The Modbus devices that are polled.")


class Listing17Entry(Table):
    """An entry of `semantic-mappings`, as in the paper's Listing 17."""

    observation: str
    unit: str | None = None
    location: str | None = None
    comment: str | None = None
    label: str | None = None


def mapping_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a mapping file, for editors. `edge/mapping/schema.json` is a copy."""
    schema = FileSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "sepa-edge mapping file"}
