"""Write the bill of materials of a system as CycloneDX 1.5 and SPDX 2.3.

    python3 -m images.sbom --root TAR --packages FILE --out NAME

Writes NAME.cdx.json and NAME.spdx.json. From the list of its Debian packages, the metadata of the Python packages in
it, and the JavaScript libraries of the web application. The same system gives the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]
"""A component as CycloneDX has it."""


def debian(file: Path) -> list[Component]:
    """Return the components from lines "NAME VERSION ARCHITECTURE"."""
    found: list[Component] = []
    for line in sorted(file.read_text().splitlines()):
        name, version, architecture = line.split()
        purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={architecture}&distro=trixie"
        found.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    return found


def python(root: Path) -> list[Component]:
    """Return the components from `*.dist-info/METADATA` in the tar file."""
    found = []
    with tarfile.open(root) as tar:
        for member in sorted(_library(tar), key=lambda member: member.name):
            if member.name.endswith(".dist-info/METADATA"):
                content = tar.extractfile(member)
                assert content is not None, "a regular file"
                of = HeaderParser().parsestr(content.read().decode())
                purl = f"pkg:pypi/{of['Name'].lower()}@{of['Version']}"
                entry: Component = {"type": "library", "bom-ref": purl, "name": of["Name"]}
                entry |= {"version": of["Version"], "purl": purl}
                if of["License-Expression"]:
                    entry["licenses"] = [{"expression": of["License-Expression"]}]
                found.append(entry)
    return found


def javascript(root: Path) -> list[Component]:
    """Return the components of the web application from its manifest in the tar file."""
    found: dict[str, Component] = {}
    with tarfile.open(root) as tar:
        for member in _library(tar):
            if member.name.endswith("/web/vendor/manifest.json"):
                content = tar.extractfile(member)
                assert content is not None, "a regular file"
                found |= {component["purl"]: component for component in vendored(content.read())}
    return [found[purl] for purl in sorted(found)]


def _library(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of the gateway and its Python packages."""
    return (member for member in tar.getmembers() if member.name.startswith("./usr/lib/sepa-edge/"))


def vendored(manifest: bytes) -> list[Component]:
    """Return the components of a manifest of JavaScript libraries; one with several files is there several times."""
    found = []
    for file in json.loads(manifest)["files"]:
        name, version = file["package"], file["version"]
        purl = f"pkg:npm/{quote(name)}@{version}"
        entry = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
        found.append(entry | {"licenses": [{"expression": file["licence"]}]})
    return found


def write(name: Path, components: Sequence[Component]) -> list[Path]:
    """Write NAME.cdx.json and NAME.spdx.json. Returns both."""
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": list(components)}
    files = name.with_name(f"{name.name}.cdx.json"), name.with_name(f"{name.name}.spdx.json")
    for file, content in zip(files, (bill, _spdx(name.name, components)), strict=True):
        file.write_text(json.dumps(content, indent=1) + "\n")
    return list(files)


def _spdx(name: str, components: Sequence[Component]) -> dict[str, object]:
    """Return a document of SPDX 2.3. Its time is SOURCE_DATE_EPOCH, and its namespace is a digest of its content."""
    packages = [_spdx_package(number, component) for number, component in enumerate(components, 1)]
    content = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    made = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    described = [("SPDXRef-DOCUMENT", "DESCRIBES", package["SPDXID"]) for package in packages]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"urn:sepa-edge:spdx:{quote(name)}:{content}",
        "creationInfo": {"created": f"{made:%Y-%m-%dT%H:%M:%SZ}", "creators": ["Organization: The sepa-edge authors"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": of, "relationshipType": kind, "relatedSpdxElement": to} for of, kind, to in described
        ],
    }


def _spdx_package(number: int, component: Component) -> Component:
    licences = [each["expression"] for each in component.get("licenses", ())]
    reference = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": component["purl"],
    }
    return {
        "SPDXID": f"SPDXRef-{number}",
        "name": component["name"],
        "versionInfo": component["version"],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseDeclared": licences[0] if licences else "NOASSERTION",
        "externalRefs": [reference],
    }


def main() -> None:
    """Write the bill of materials."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--root", type=Path, required=True, metavar="TAR")
    options.add_argument("--packages", type=Path, required=True, metavar="FILE")
    options.add_argument("--out", type=Path, required=True, metavar="NAME")
    given = options.parse_args()
    write(given.out, debian(given.packages) + python(given.root) + javascript(given.root))


if __name__ == "__main__":
    main()
