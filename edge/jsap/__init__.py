"""JSON SPARQL Application Profiles (SEPA paper, section 5.3): parsed, checked and compiled to text templates.

A profile has named updates and queries. Each is cut into pieces once; a request joins them with terms.
"""

from edge.jsap.bindings import ForcedBinding, Value
from edge.jsap.entries import Graphs, ProfileEntry
from edge.jsap.errors import BindingError, Problem, ProfileError, UnknownEntry
from edge.jsap.profile import Profile, Report, SemanticMapping, check
from edge.jsap.targets import Authentication, Sparql11Target, SubscribeTarget

__all__ = [
    "Authentication",
    "BindingError",
    "ForcedBinding",
    "Graphs",
    "Problem",
    "Profile",
    "ProfileEntry",
    "ProfileError",
    "Report",
    "SemanticMapping",
    "Sparql11Target",
    "SubscribeTarget",
    "UnknownEntry",
    "Value",
    "check",
]
