"""Checks of the private names of libraries on which `edge.compat` relies."""

import inspect
from importlib.metadata import version
from types import ModuleType
from typing import Any


def advice(library: str, module: ModuleType) -> str:
    """Return what to do when a private name has changed."""
    return (
        f"{library} {version(library)} has changed. Read its changes, adapt {module.__name__}, the version in its "
        "docstring, and this test; or limit the version in pyproject.toml"
    )


def check_parameters(library: str, module: ModuleType, owner: type, expected: dict[str, list[str]]) -> None:
    """Check the parameters of methods, without `self`."""
    for name, parameters in expected.items():
        method = getattr(owner, name, None)
        assert method is not None, f"{owner.__name__}.{name} is gone: {advice(library, module)}"
        found = list(inspect.signature(method).parameters)[1:]
        assert found == parameters, f"{owner.__name__}.{name} has the parameters {found}: {advice(library, module)}"


def check_used(library: str, module: ModuleType, source: Any, *texts: str) -> None:
    """Check that the library's source still contains these texts, such as calls of overridden methods."""
    code = inspect.getsource(source)
    for text in texts:
        assert text in code, f"{source.__name__} no longer contains {text!r}: {advice(library, module)}"


def check_attributes(library: str, module: ModuleType, subject: object, *names: str) -> None:
    """Check that an object has these attributes."""
    for name in names:
        assert hasattr(subject, name), f"{type(subject).__name__} has no {name!r}: {advice(library, module)}"
