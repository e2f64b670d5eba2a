"""Hook of mkdocs: fills reference/http.md with the requests and data types of the OpenAPI description, as Markdown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

DESCRIPTION = Path(__file__).resolve().parents[2] / "edge/gates/http/openapi.yaml"
PLACE = "<!-- openapi -->"
METHODS = ("get", "post", "put", "patch", "delete")
COMMON = {"4XX": {"$ref": "#/components/responses/Error"}, "5XX": {"$ref": "#/components/responses/Error"}}
"""Answers of all requests: the page describes them once."""

Part = dict[str, Any]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the placeholder by the description."""
    if PLACE not in markdown:
        return markdown
    return markdown.replace(PLACE, "\n".join(Api(yaml.safe_load(DESCRIPTION.read_text(encoding="utf-8"))).lines()))


class Api:
    """An OpenAPI 3.1 document as Markdown. References stay within the document."""

    def __init__(self, document: Part) -> None:
        self.document = document

    def lines(self) -> Iterator[str]:
        """Return the requests by path, then the data types by name."""
        yield self.document["info"]["description"]
        # Paths that share all operations, such as /query and /secure/query, are described once.
        same: dict[str, list[str]] = {}
        for path, item in self.document["paths"].items():
            # Paths share operations by YAML aliases, which load as the same object.
            first = next((other for other in same if self.document["paths"][other] is item), path)
            same.setdefault(first, []).append(path)
        for path, others in same.items():
            item = self.document["paths"][path]
            yield from ("", "## " + ", ".join(f"`{other}`" for other in others))
            for method in METHODS:
                if method in item:
                    yield from self.operation(method, path, item[method], item.get("parameters", []))
        yield from ("", "## Data types")
        for name, schema in self.document["components"]["schemas"].items():
            yield from ("", f"### {name}", "")
            if "properties" in schema:
                yield from filter(None, [schema.get("description")])
                yield from self.fields(schema)
            else:
                yield f"{self.kind(schema)}. {schema.get('description', '')}"
                yield from (f"\nFor example `{example}`." for example in schema.get("examples", []))

    def operation(self, method: str, path: str, operation: Part, shared: list[Part]) -> Iterator[str]:
        """Describe one request: parameters, body, answers."""
        yield from (
            "",
            f"### `{method.upper()} {path}`",
            "",
            f"{operation['summary']}.",
            operation.get("description", ""),
        )
        yield from ("", f"Authentication: {self.authentication(operation)}.")
        if parameters := [self.resolved(part) for part in shared + operation.get("parameters", [])]:
            yield from ("", "| parameter | in | type | meaning |", "|---|---|---|---|")
            for part in parameters:
                name = f"`{part['name']}`" + (" (required)" if part.get("required") else "")
                yield f"| {name} | {part['in']} | {self.kind(part['schema'])} | {self.meaning(part)} |"
        if body := self.resolved(operation.get("requestBody", {})):
            yield from ("", "Body:", "", *self.contents(body["content"]))
        for status, given in operation["responses"].items():
            answer = self.resolved(given)
            if COMMON.get(status) != given:
                yield from (
                    "",
                    f"Answer {status}: {answer['description'].rstrip('.')}.",
                    "",
                    *self.contents(answer.get("content", {})),
                )

    def authentication(self, operation: Part) -> str:
        """Name the accepted credentials, where security is enabled."""
        required = operation.get("security", [{"token": []}])
        names = {"token": "a bearer token", "client": "client id and client secret (Basic)"}
        found = " or ".join(names[name] for choice in required for name in choice)
        # An empty requirement makes authentication optional (OpenAPI 3.1, Operation Object).
        return found + (" is optional" if found and {} in required else "") or "none"

    def contents(self, content: Part) -> Iterator[str]:
        """List the data types with their media types, and the fields of objects."""
        media_types: dict[str, list[str]] = {}
        for media, entry in content.items():
            media_types.setdefault(self.kind(entry["schema"]), []).append(f"`{media}`")
        for kind, names in media_types.items():
            yield f"- {', '.join(names)}: {kind}"
        for entry in content.values():
            if "properties" in entry["schema"]:
                yield from self.fields(entry["schema"])

    def fields(self, schema: Part) -> Iterator[str]:
        """Describe the members of an object, with those of nested objects as `outer.inner`."""
        yield from ("", "| field | type | meaning |", "|---|---|---|")
        yield from self._rows(schema, "")

    def _rows(self, schema: Part, prefix: str) -> Iterator[str]:
        for name, field in schema["properties"].items():
            needed = "" if name in schema.get("required", ()) else " (optional)"
            yield f"| `{prefix}{name}`{needed} | {self.kind(field)} | {self.meaning(field)} |"
            if "properties" in field:
                yield from self._rows(field, f"{prefix}{name}.")

    def meaning(self, part: Part) -> str:
        """Return the description, or that of the data type, with examples."""
        schema = self.resolved(part.get("schema", part))
        examples = ", ".join(f"`{example}`" for example in schema.get("examples", []))
        description = part.get("description", schema.get("description", ""))
        return f"{description} For example {examples}." if examples else str(description)

    def kind(self, schema: Part) -> str:
        """Return the type in words, with a link to a named one."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        if "const" in schema:
            return f"`{schema['const']}`"
        if "enum" in schema:
            return ", ".join(f"`{value}`" for value in schema["enum"])
        if "properties" in schema:
            return "object with these fields"
        if "anyOf" in schema:
            return " or ".join(self.kind(choice) for choice in schema["anyOf"])
        if schema["type"] == "array":
            return f"array of {self.kind(schema['items'])}" if "items" in schema else "array"
        # OpenAPI 3.1 uses JSON Schema, in which a type may be a list.
        if isinstance(schema["type"], list):
            return " or ".join(schema["type"])
        low, high = (schema.get(f"{edge}imum", schema.get(f"{edge}Length")) for edge in ("min", "max"))
        length = " characters" if "maxLength" in schema else ""
        if high is not None:
            return f"{schema['type']}, {low} to {high:,}{length}"
        return str(schema["type"]) + (f", at least {low}" if low is not None else "")

    def resolved(self, part: Part) -> Part:
        """Follow a reference within the document."""
        if "$ref" not in part:
            return part
        found: Any = self.document
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return self.resolved(found)
