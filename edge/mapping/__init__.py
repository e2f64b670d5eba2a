"""Mapping language: converts payloads to readings, and solutions of queries to messages.

The package is pure. It opens no sockets, starts no threads, reads no clock and imports no other package of edge.
"""

from edge.mapping.actuators import Actuator, Command
from edge.mapping.errors import Fault, MappingError
from edge.mapping.evaluate import FIRST_NUMBER
from edge.mapping.explain_message import Candidate, MessageExplanation, explain, members, to_json
from edge.mapping.file_model import mapping_schema
from edge.mapping.mapper import Mapper
from edge.mapping.outcome import Declared, Mapped, MessageProblem
from edge.mapping.pack import MappingPack, builtin_names, load_builtin, load_pack
from edge.mapping.reading import Event, Reading
from edge.mapping.settings import MappingLimits
from edge.mapping.solution import CommandError, SolutionTerm
from edge.mapping.suggestion import suggest
from edge.mapping.units import Unit, all_units

__all__ = [
    "FIRST_NUMBER",
    "Actuator",
    "Candidate",
    "Command",
    "CommandError",
    "Declared",
    "Event",
    "Fault",
    "Mapped",
    "Mapper",
    "MappingError",
    "MappingLimits",
    "MappingPack",
    "MessageExplanation",
    "MessageProblem",
    "Reading",
    "SolutionTerm",
    "Unit",
    "all_units",
    "builtin_names",
    "explain",
    "load_builtin",
    "load_pack",
    "mapping_schema",
    "members",
    "suggest",
    "to_json",
]
