"""Is all well with the gateway and its machine: small checks, each a file of `checks`, looking from outside."""

from edge.doctor.context import Context, Unasked
from edge.doctor.examination import examine
from edge.doctor.finding import Finding, State

__all__ = ["Context", "Finding", "State", "Unasked", "examine"]
