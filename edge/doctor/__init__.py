"""Diagnosis of the gateway and its host from outside: small checks, each in a file of `checks`."""

from edge.doctor.all_checks import examine
from edge.doctor.context import DoctorContext, Unasked
from edge.doctor.finding import Finding, State

__all__ = ["DoctorContext", "Finding", "State", "Unasked", "examine"]
