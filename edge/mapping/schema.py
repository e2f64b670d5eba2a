"""JSON schema of mapping files for editors, and for checks without the gateway."""

from __future__ import annotations

from typing import Any

from edge.mapping.model import FileSpec


def mapping_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a mapping file; `edge/mapping/schema.json` is a copy."""
    schema = FileSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "sepa-edge mapping file"}
