"""Write the bill of materials of a system as CycloneDX 1.5.

    python3 -m images.sbom --root TAR --packages FILE --out JSON

From the list of its Debian packages, the metadata of the Python packages in it, and the JavaScript libraries of the web
application. The same system gives the same file.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import quote


def debian(file: Path) -> list[dict[str, object]]:
    """Return the components from lines "NAME VERSION ARCHITECTURE"."""
    found: list[dict[str, object]] = []
    for line in sorted(file.read_text().splitlines()):
        name, version, architecture = line.split()
        purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={architecture}&distro=trixie"
        found.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    return found


def python(root: Path) -> list[dict[str, object]]:
    """Return the components from `*.dist-info/METADATA` in the tar file."""
    found = []
    with tarfile.open(root) as tar:
        for member in sorted(tar.getmembers(), key=lambda member: member.name):
            if member.name.startswith("./usr/lib/sepa-edge/") and member.name.endswith(".dist-info/METADATA"):
                content = tar.extractfile(member)
                assert content is not None, "a regular file"
                of = HeaderParser().parsestr(content.read().decode())
                purl = f"pkg:pypi/{of['Name'].lower()}@{of['Version']}"
                entry: dict[str, object] = {"type": "library", "bom-ref": purl, "name": of["Name"]}
                entry |= {"version": of["Version"], "purl": purl}
                if of["License-Expression"]:
                    entry["licenses"] = [{"expression": of["License-Expression"]}]
                found.append(entry)
    return found


def javascript(root: Path) -> list[dict[str, object]]:
    """Return the components of the web application from its manifest in the tar file."""
    found: dict[str, dict[str, object]] = {}
    with tarfile.open(root) as tar:
        for member in tar.getmembers():
            if member.name.startswith("./usr/lib/sepa-edge/") and member.name.endswith("/web/vendor/manifest.json"):
                content = tar.extractfile(member)
                assert content is not None, "a regular file"
                for file in json.load(content)["files"]:
                    name, version = file["package"], file["version"]
                    purl = f"pkg:npm/{quote(name)}@{version}"
                    entry = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
                    found[purl] = entry | {"licenses": [{"expression": file["licence"]}]}
    return [found[purl] for purl in sorted(found)]


def main() -> None:
    """Write the bill of materials."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--root", type=Path, required=True, metavar="TAR")
    options.add_argument("--packages", type=Path, required=True, metavar="FILE")
    options.add_argument("--out", type=Path, required=True, metavar="JSON")
    given = options.parse_args()
    components = debian(given.packages) + python(given.root) + javascript(given.root)
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
    given.out.write_text(json.dumps(bill, indent=1) + "\n")


if __name__ == "__main__":
    main()
