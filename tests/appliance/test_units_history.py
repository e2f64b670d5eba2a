"""The units and the Kubernetes manifests of the history: valid, sandboxed, and with options that the commands have."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context
from click.core import ParameterSource

from edge import __version__
from spark_offload.cli import edge_history

UNITS = Path(__file__).parents[2] / "systemd" / "history"
MANIFESTS = UNITS.parents[1] / "images" / "kubernetes"
SERVICES = ["edge-history-receive.service", "edge-history-ingest.service", "edge-history-maintain.service"]
PROGRAM = "/opt/sepa-edge/bin/edge-history"
EXPOSED = 1.5
"""Upper limit of the exposure level, from 0 to 10, that `systemd-analyze security` computes."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here; install the package systemd")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("unit", [*SERVICES, "edge-history-maintain.timer"])
def test_systemd_verifies_the_units(tmp_path: Path, unit: str) -> None:
    for name in [*SERVICES, "edge-history-maintain.timer"]:
        text = (UNITS / name).read_text()
        (tmp_path / name).write_text(text.replace(PROGRAM, str(Path(sys.executable).with_name("edge-history"))))
    found = analyze("verify", "--man=no", str(tmp_path / unit))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", SERVICES)
def test_services_are_sandboxed(unit: str) -> None:
    found = analyze("security", "--offline=true", str(UNITS / unit))
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", found.stdout)
    assert level is not None
    assert float(level[1]) <= EXPOSED


def unit(service: str) -> list[str]:
    (command,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", (UNITS / service).read_text(), re.MULTILINE)
    program, *arguments = command.replace("\\\n", " ").split()
    assert program == PROGRAM
    return arguments


def pods() -> dict[str, dict[str, Any]]:
    """Return the pods of the manifests, by the name of their Deployment or CronJob."""
    found = {}
    for name in yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]:
        for one in yaml.safe_load_all((MANIFESTS / name).read_text()):
            outer = one["spec"].get("jobTemplate", one)["spec"] if "spec" in one else {}
            if "template" in outer:
                found[one["metadata"]["name"]] = outer["template"]["spec"]
    return found


def given(arguments: list[str], directory: Path) -> dict[str, object]:
    """Parse a command line with the program itself. Returns the options that it contains."""
    for name in ("tls.crt", "tls.key", "certificate", "key"):
        (directory / name).touch()
    name, *rest = [
        re.sub(r"(?:(?<==)|^)(?:/srv|/etc|/var|%d)/\S*?([^/]+)$", rf"{directory}/\1", each) for each in arguments
    ]
    command = edge_history.get_command(Context(edge_history), name)
    assert command is not None
    context = command.make_context(name, rest)
    options = [key for key in context.params if context.get_parameter_source(key) is ParameterSource.COMMANDLINE]
    return {"command": name} | {key: context.params[key] for key in options}


@pytest.mark.parametrize(
    ("service", "pod"), [("receive", "receiver"), ("ingest", "ingester"), ("maintain", "maintenance")]
)
def test_units_and_manifests_have_the_same_options(service: str, pod: str, tmp_path: Path) -> None:
    in_unit = given(unit(f"edge-history-{service}.service"), tmp_path)
    in_pod = given(pods()[pod]["containers"][0]["args"], tmp_path)
    assert in_unit["command"] == service
    assert set(in_pod) - {"conf", "max_landing_bytes"} == set(in_unit)
    assert {key: in_pod[key] for key in ("every", "listen") if key in in_pod} == {
        key: in_unit[key] for key in ("every", "listen") if key in in_unit
    }


def test_other_commands_of_containers_have_their_options(tmp_path: Path) -> None:
    services = yaml.safe_load((MANIFESTS.parent / "compose" / "compose.yaml").read_text())["services"]
    component = yaml.safe_load((MANIFESTS / "retention" / "kustomization.yaml").read_text())
    (added,) = yaml.safe_load(component["patches"][0]["patch"])
    assert given([*pods()["maintenance"]["containers"][0]["args"], added["value"]], tmp_path)["drop_raw_after"]
    assert given(services["history"]["command"], tmp_path)["command"] == "ingest"
    assert given(pods()["verification"]["containers"][0]["args"], tmp_path)["command"] == "verify"


def test_commands_of_the_dagster_job_have_their_options(tmp_path: Path) -> None:
    source = ast.parse((UNITS.parents[1] / "examples" / "history" / "dagster_day.py").read_text())
    constants = {
        "LANDING": "landing",
        "TABLE": "history",
        "str(new)": "out",
        "*times": "--from 2026-01-01 --to 2026-01-02",
    }
    commands = []
    for node in ast.walk(source):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "edge_history":
            texts = [constants.get(ast.unparse(each)) or ast.literal_eval(each) for each in node.args[1:]]
            commands.append(given(" ".join(texts).split(), tmp_path)["command"])
    assert sorted(commands) == ["export", "ingest", "maintain", "verify"]


def test_pods_are_restricted_and_mount_what_exists() -> None:
    kustomization = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    files = {path.name for path in MANIFESTS.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files
    assert kustomization["images"][0]["newTag"] == __version__
    claims = {one["metadata"]["name"] for one in yaml.safe_load_all((MANIFESTS / "volumes.yaml").read_text())}
    for name, pod in pods().items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["automountServiceAccountToken"] is False, name
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert {
            each["persistentVolumeClaim"]["claimName"] for each in volumes.values() if "persistentVolumeClaim" in each
        } <= claims
        for container in pod["containers"]:
            assert container["image"].partition(":")[0] in {"sepa-edge-history", "quay.io/prometheus/node-exporter"}
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
    for name in ("maintenance", "verification"):
        job = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())
        assert (job["kind"], job["spec"]["concurrencyPolicy"]) == ("CronJob", "Forbid")
