"""Mapping files of both forms: the mapping language, and profiles of applications with initial mappings (JSAP)."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.mapping import Fault, MappingError, MappingLimits, MappingPack, load_pack

if TYPE_CHECKING:
    from edge.jsap import SemanticMapping

_PROFILES: Final = frozenset({".jsap", ".yaml", ".yml"})
_ENDINGS: Final = frozenset({".toml", ".json"}) | _PROFILES


def is_mapping_file(path: Path) -> bool:
    """Return whether the name is that of a mapping file."""
    return path.suffix in _ENDINGS and not path.name.startswith(".")


def load_file(path: Path, *, limits: MappingLimits | None = None, strict: bool = True) -> MappingPack:
    """Return the pack of a file. `strict`: see `load_pack`.

    Raises `MappingError` with every problem, `OSError` for an unreadable file.
    """
    if path.suffix not in _PROFILES:
        return load_pack(path, limits=limits, strict=strict)
    # Imported here: without a profile among the mapping files, the gateway saves the memory and start-up time.
    from edge.jsap import Profile, ProfileError

    try:
        profile = Profile.load(path)
    except ProfileError as error:
        faults = [Fault(each.reason, file=each.file, line=each.line or None) for each in error.problems]
        raise MappingError(faults) from None
    # As Listing 17 of the paper, so that both forms of files have one loader.
    table = {mapping.topic: _entry(mapping) for mapping in profile.mappings}
    pack = load_pack(json.dumps({"semantic-mappings": table}), path.stem, limits=limits, strict=strict)
    return replace(pack, file=str(path))


def _entry(mapping: SemanticMapping) -> dict[str, str]:
    """Return an entry of Listing 17. Its IRIs are complete, without prefixes."""
    entry = {key: value for key, value in asdict(mapping).items() if value is not None and key != "topic"}
    return {key: f"<{value}>" if key in ("observation", "unit", "location") else value for key, value in entry.items()}
