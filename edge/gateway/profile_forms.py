"""The profile of an application (JSAP) as forms: its entries with their variables, and their texts with values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

import pyoxigraph as ox

from edge.gates.http.profiles import ProfileRequest
from edge.jsap import BindingError, ForcedBinding, Profile, ProfileEntry, ProfileError, UnknownEntry
from edge.protocol.errors import InvalidRequest


def read_profile(wanted: ProfileRequest) -> Mapping[str, object]:
    """Return the `entries` of a profile, and with a wanted entry its `sparql`.

    Files are not included: the text is the whole profile. Raises `InvalidRequest` with all problems of the profile.
    """
    name = PurePath(wanted.name).name or "profile.jsap"
    try:
        profile = Profile.parse(wanted.text, name, includes=False)
        entries = [*map(_entry, profile.queries.values()), *map(_entry, profile.updates.values())]
        if not wanted.kind:
            return {"entries": entries}
        entry = profile.query(wanted.entry) if wanted.kind == "query" else profile.update(wanted.entry)
        return {"entries": entries, "sparql": entry.text(wanted.bindings)}  # type: ignore[arg-type]
    except (ProfileError, UnknownEntry, BindingError) as error:
        raise InvalidRequest(str(error)) from None


def _entry(entry: ProfileEntry) -> dict[str, object]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "variables": [_variable(binding) for binding in entry.forced.values()],
        "default_graphs": entry.graphs.default,
        "named_graphs": entry.graphs.named,
    }


def _variable(binding: ForcedBinding) -> dict[str, object]:
    default = binding.default
    return {
        "name": binding.name,
        "type": binding.type,
        "datatype": binding.datatype,
        "language": binding.language,
        "default": default.value if isinstance(default, ox.NamedNode | ox.Literal | ox.BlankNode) else None,
    }
