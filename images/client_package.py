"""Make the wheel of the client library alone: the package `sepa_edge_client`, without the gateway.

    python3 -m images.client_package --out DIR

The package has the modules of `edge.client` and `edge.jsap` and those that they import, under the name
`sepa_edge_client` in place of `edge`. With a name of its own it can be installed next to the gateway: two packages
cannot own the same files. Two runs on the same sources give the same file.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from packaging.requirements import Requirement

from edge import __version__

ROOT: Final = Path(__file__).parents[1]
NAME: Final = "sepa_edge_client"
_PUBLIC: Final = ("edge.client", "edge.jsap")
_DISTRIBUTIONS: Final = {"yaml": "pyyaml"}
"""Distribution by the name of its package, where they differ."""
_IMPORT: Final = re.compile(r"^(\s*(?:from|import) )edge\b", re.MULTILINE)
_README: Final = """# sepa-edge-client

The client library of the sepa-edge gateway: queries, updates, subscriptions and observations, with an asyncio and a
synchronous interface. Its documentation is that of `edge.client` and `edge.jsap`:
import `sepa_edge_client.client` and `sepa_edge_client.jsap` instead.
"""
_PROJECT: Final = """[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "sepa-edge-client"
version = "{version}"
description = "The client library of the sepa-edge gateway."
readme = "README.md"
license = "{license}"
license-files = ["LICENSE"]
requires-python = "{python}"
classifiers = ["Development Status :: 3 - Alpha", "Programming Language :: Python :: 3", "Typing :: Typed"]
dependencies = {dependencies}

[tool.hatch.build.targets.wheel]
packages = ["{name}"]
"""


def modules() -> tuple[dict[str, Path], set[str]]:
    """Return the modules of the client library by name, and the packages that they import from elsewhere."""
    found: dict[str, Path] = {}
    others: set[str] = set()
    waiting = [name for public in _PUBLIC for name in _inside(public)]
    while waiting:
        name = waiting.pop()
        file = _file(name)
        if name in found or file is None:  # None: `from module import NAME` names no module
            continue
        found[name] = file
        waiting.append(name.rpartition(".")[0])
        for imported in _imports(ast.parse(file.read_text())):
            package = imported.partition(".")[0]
            if package == "edge":
                waiting.append(imported)
            elif package not in sys.stdlib_module_names:
                others.add(package)
    return found, others


def _inside(package: str) -> Iterator[str]:
    directory = ROOT / package.replace(".", "/")
    return (f"{package}.{file.stem}" if file.stem != "__init__" else package for file in sorted(directory.glob("*.py")))


def _file(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    if not module:
        return None
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the names of imported modules, and `module.NAME` for each name from a module: it may be a module, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def write_sources(directory: Path) -> None:
    """Write the project of the client library into an empty directory."""
    found, _ = modules()
    for module, file in found.items():
        target = directory / NAME / file.relative_to(ROOT / "edge")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_IMPORT.sub(rf"\1{NAME}", file.read_text()))
        left = [name for name in _imports(ast.parse(target.read_text())) if name.partition(".")[0] == "edge"]
        if left:
            raise SystemExit(f"{module} imports {left[0]} in a way that cannot be renamed")
    (directory / NAME / "py.typed").touch()
    (directory / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
    (directory / "README.md").write_text(_README)
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = _PROJECT.format(
        version=__version__,
        license=project["license"],
        python=project["requires-python"],
        dependencies=json.dumps(dependencies()),
        name=NAME,
    )
    (directory / "pyproject.toml").write_text(text)


def dependencies() -> list[str]:
    """Return the dependencies of the wheel, with their versions as pyproject.toml has them."""
    wanted = {_DISTRIBUTIONS.get(name, name) for name in modules()[1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [each for each in project["dependencies"] if Requirement(each).name in wanted]
    if len(found) != len(wanted):
        raise SystemExit(f"pyproject.toml must name {', '.join(sorted(wanted))} as dependencies")
    return found


def requirements() -> set[str]:
    """Return the names of the dependencies and of all that they require, from the packages of this environment."""
    waiting = [Requirement(each).name for each in dependencies()]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            needed = map(Requirement, metadata.requires(name) or [])
            waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def build(out: Path) -> Path:
    """Write the wheel into a directory, with the time of SOURCE_DATE_EPOCH. Returns its path."""
    with TemporaryDirectory(prefix="client-") as temporary:
        directory = Path(temporary)
        write_sources(directory)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out.absolute())]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return out / f"{NAME}-{__version__}-py3-none-any.whl"


def main() -> None:
    """Write the wheel."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--out", type=Path, required=True, metavar="DIR")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(build(given.out))


if __name__ == "__main__":
    main()
