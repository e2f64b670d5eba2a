"""Test runs: no test is lost, and pytest-xdist keeps the tests of a file on one worker."""

import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.parameter_ids import parameter_id

CONFTEST = Path(__file__).with_name("conftest.py")
FILE = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(6))
def test_worker(number):
    with pathlib.Path("workers").open("a") as file:
        file.write(f"{__name__} {os.environ.get('PYTEST_XDIST_WORKER')}\\n")
"""
SAME_IDS = """

@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    item._nodeid = item.nodeid.partition("[")[0]
"""


@pytest.fixture
def project(tmp_path):
    """Return a directory with two test files under this project's conftest."""
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(FILE)
    return tmp_path


def run(project, workers):
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "loadgroup", "--rootdir", project]
    command += ["-p", "no:schemathesis"]  # its import takes as long as such a run
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*command, "-c", os.devnull], cwd=project, env=own, capture_output=True, text=True, timeout=300
    )


def test_the_tests_of_a_file_run_on_one_worker(project):
    done = run(project, 2)
    assert "12 passed" in done.stdout, done.stdout + done.stderr
    lines = (project / "workers").read_text().splitlines()
    assert len(lines) == 12
    assert len(set(lines)) == 2


def test_unit_tests_start_last(project):
    (project / "test_real.py").write_text(f"{FILE}\npytestmark = pytest.mark.integration\n")
    done = run(project, 0)
    assert "18 passed" in done.stdout, done.stdout + done.stderr
    names = [line.split()[0] for line in (project / "workers").read_text().splitlines()]
    assert names == ["test_real"] * 6 + ["test_one"] * 6 + ["test_two"] * 6


def test_waiting_tests_run_between_others(project):
    waiting = project / "tests" / "cli"
    waiting.mkdir(parents=True)
    for name in ("test_three.py", "test_four.py"):
        (waiting / name).write_text(FILE)
    done = run(project, 0)
    assert "24 passed" in done.stdout, done.stdout + done.stderr
    names = [line.split()[0] for line in (project / "workers").read_text().splitlines()]
    assert names == [name for name in ("test_one", "test_four", "test_two", "test_three") for _ in range(6)]


LOGS = """
import logging

class OwnFormat(logging.Logger):
    def addHandler(self, handler):
        handler.setFormatter(logging.Formatter("own format %(name)s"))
        super().addHandler(handler)

def test_makes_a_logger():
    logging.setLoggerClass(OwnFormat)
    logging.getLogger("own").propagate = False
    logging.setLoggerClass(logging.Logger)

def test_logs(caplog):
    logging.getLogger("other").error("the message")
    assert "the message" in caplog.text
"""


def test_a_logger_with_a_format_of_its_own_does_not_change_that_of_later_tests(project):
    (project / "test_logs.py").write_text(LOGS)
    done = run(project, 0)
    assert "14 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_tests_with_the_same_id_are_refused(project, workers):
    with (project / "conftest.py").open("a") as conftest:
        conftest.write(SAME_IDS)
    done = run(project, workers)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "2 node ids name more than one test, like test_one.py::test_worker" in done.stdout + done.stderr
    assert not (project / "workers").exists()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["query", "ASK {}"], "query ASK {}"),
        ({"action": "query", "graphs": ["urn:a", "urn:b"]}, "action=query graphs=urn:a urn:b"),
        (frozenset("cab"), "a b c"),
        (timedelta(minutes=90), "1:30:00"),
        (("a::b", "\n", b"\x01\x02"), "a:b \\n 01 02"),
        (["x" * 100], "x" * 57 + "..."),
        ("text", None),
        ("x" * 201, "x" * 57 + "..."),
        (b"\n" + b"x" * 200, "\\n" + "x" * 55 + "..."),
        ([object()], None),
    ],
    ids=["list", "mapping", "set", "duration", "escapes", "long", "text", "long text", "long bytes", "object"],
)
def test_parameter_ids_describe_the_values(value, expected):
    assert parameter_id(value) == expected
