"""Is all well with the gateway and its machine: small checks, each a file of `checks`, looking from outside."""

from edge.doctor.examination import examine
from edge.doctor.finding import Finding, State
from edge.doctor.surroundings import Surroundings, Unasked

__all__ = ["Finding", "State", "Surroundings", "Unasked", "examine"]
