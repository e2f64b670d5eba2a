"""Configuration and hooks for all tests."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import httpx
import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings

from tests.support.parameter_ids import parameter_id
from tests.support.waiting import PATIENCE

# A shell lets its background jobs ignore Ctrl-C, and the processes that tests start inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Imports and the collection of tests leave hardly any garbage, and its collection takes a fifth of their time.
gc.disable()

# A loaded machine delays answers by more than the five seconds that httpx waits. Its functions share this default.
DEFAULT_TIMEOUT_CONFIG.connect = DEFAULT_TIMEOUT_CONFIG.read = DEFAULT_TIMEOUT_CONFIG.write = PATIENCE

pytest_plugins = ("tests.support.browser",)
ROOT = Path(__file__).parent
KINDS = {
    "spark": ("history/",),
    "browser": ("web/",),
    "faults": (
        *("faults/", "fuzz/", "simulation/", "adapters/test_exactly_once", "adapters/test_kill_between_parts"),
        *("engine/test_journal_crash", "test_clean_stop", "test_replay", "test_timers_crash"),
    ),
    "forks": (
        *("engine/test_demotion", "engine/test_durable_subscriptions", "engine/test_earlier_index"),
        *("engine/test_fault_stories", "engine/test_first_results", "engine/test_forked_evaluation"),
        *("engine/test_long_updates", "engine/test_oracle", "engine/test_full_refresh", "engine/test_result_charge"),
        *("engine/test_staged_changes", "engine/test_update_plans"),
    ),
    "integration": (
        *("backup/", "bench/", "cli/", "client/", "doctor/", "documentation/", "examples/", "gates/"),
        *("gateway/", "outbox/", "recent/test_recent_gateway", "security/"),
        *(
            "adapters/test_actuation",
            "adapters/test_broker",
            "adapters/test_desired_values",
            "adapters/test_modbus",
            "adapters/test_mqtt",
            "adapters/test_serial_gateway",
            "discovery/test_discovery_gateway",
            "sparkplug/test_sparkplug_gateway",
            "announce/test_announce_gateway",
            "announce/test_announce_outgoing",
            "announce/test_announce_rights",
        ),
        *(
            "appliance/test_addon",
            "appliance/test_oci",
            "appliance/test_package",
            "appliance/test_partitions",
            "appliance/test_release",
            "appliance/test_slot",
        ),
        *("appliance/test_system_update", "appliance/test_trial", "appliance/test_uboot_env", "appliance/test_units"),
        *("compat/test_compat_amqtt", "compat/test_compat_asyncio", "compat/test_compat_websockets"),
        *("engine/test_background_snapshot", "engine/test_fault_isolation", "engine/test_journal_directory"),
        *("engine/test_limits", "engine/test_plan_charge", "engine/test_processing_modes", "engine/test_rdf12"),
        *("engine/test_moved_files", "engine/test_repeated_patterns"),
        *("engine/test_restorable", "engine/test_size_limits"),
        *("test_allocator", "test_app", "test_http_client", "test_last_run", "test_project", "test_test_runs"),
    ),
}
"""Beginnings of the directories and files below tests/ by the marker of their tests. Other tests are `unit`.

A test may have another one of these markers itself."""
PROCESSES = frozenset({"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})
"""Audit events of Python that start a process."""
LONGEST = ("spark", "stories-", "tests/faults/", "tests/web/")
"""Beginnings of the groups of pytest-xdist that take longest. They start first."""
WAITING = (
    *("tests/adapters/", "tests/backup/", "tests/bench/", "tests/cli/", "tests/client/", "tests/doctor/"),
    *("tests/documentation/", "tests/examples/"),
    *("tests/faults/", "tests/gates/", "tests/gateway/", "tests/outbox/", "tests/security/", "tests/web/"),
)
"""Groups that mostly wait for processes and clocks. Other groups use a processor all the time."""

# No property is about time, and a machine may be busy.
settings.register_profile("unhurried", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", parent=settings.get_profile("unhurried"), max_examples=20, derandomize=True)
settings.load_profile("unhurried")


started: list[str] = []
"""Processes that the running test has started."""
left_writers: WeakSet[threading.Thread] = WeakSet()
"""Writer threads of engines that earlier files left running."""


def _note_process(event: str, arguments: tuple[object, ...]) -> None:
    if event in PROCESSES:
        started.append(f"{event}{arguments[:2]}"[:200])


sys.addaudithook(_note_process)


def kind_of(name: str) -> str:
    """Return the marker of the tests of a file or directory, named from tests/ on."""
    return next((kind for kind, beginnings in KINDS.items() if name.startswith(beginnings)), "unit")


def pytest_configure(config: pytest.Config) -> None:
    """Let property tests search little, and the same examples in each run, if only unit tests are wanted."""
    if config.getoption("markexpr") == "unit":
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of other tests if only those of one kind are wanted: that saves time and memory."""
    wanted = config.getoption("markexpr")
    kind = kind_of(collection_path.relative_to(ROOT).as_posix() + ("/" if collection_path.is_dir() else ""))
    if wanted in ("unit", "forks"):
        # A directory of unit tests may have files of other kinds.
        return True if kind != wanted and not (kind == "unit" and collection_path.is_dir()) else None
    return True if f"not {kind}" in wanted.split(" and ") else None


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name values that pytest would only number."""
    return parameter_id(val)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    started.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Fail a unit test that has started a process: `make test-fast` runs it before each commit.

    Fail the last test of a file that leaves an engine running: it would use resources of all later tests.
    """
    yield
    if nextitem is None or nextitem.path != item.path:
        left = [each for each in threading.enumerate() if each.name == "writer" and each not in left_writers]
        left_writers.update(left)
        if left:
            pytest.fail(f"A test of {item.path.name} left {len(left)} engines running: close them")
    if started and item.get_closest_marker("unit"):
        pytest.fail(
            f"The test started a process ({started[0]}), so it is not a unit test: add it to KINDS in conftest.py"
        )


def share_certificates() -> None:
    """Share one TLS context with the default authorities among all HTTP clients of the tests.

    Otherwise each client reads 140 certificates into its own context, which takes as long as a small test. The
    environment may name the file of these certificates. A test that names another one gets a context of its own.
    """
    create = httpx.create_ssl_context
    shared = functools.cache(create)
    trusted = _trusted_files()

    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is True and cert is None and _trusted_files() == trusted:
            return shared(verify, cert, trust_env)
        return create(verify, cert, trust_env)

    httpx._transports.default.create_ssl_context = context


def _trusted_files() -> list[str | None]:
    return [os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]


share_certificates()


@pytest.fixture(autouse=True)
def plain_log(request: pytest.FixtureRequest) -> None:
    """Each test starts with pytest's log format and the default level, whatever an earlier one in this process did.

    PySpark gives a handler that is added to one of its loggers a format of its own. Pytest has one handler for all
    tests, and adds it in each phase of a test to all loggers that do not propagate. Those of PySpark do not.
    """
    logging.getLogger().setLevel(logging.WARNING)
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and type(logger) is not logging.Logger:
            logger.propagate = True
    plugin = request.config.pluginmanager.get_plugin("logging-plugin")
    plugin.caplog_handler.setFormatter(plugin.formatter)
    plugin.report_handler.setFormatter(plugin.formatter)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test. Keep the tests of a file, and all tests with a Spark session, on one worker of pytest-xdist.

    A test may name a group of its own instead. Unit tests are short and start last, so that all workers end together.
    Groups that wait are spread evenly among those that do not, so that no processor is idle.
    """
    if not hasattr(config, "workerinput"):  # the controller of pytest-xdist checks what its workers collected
        refuse_duplicate_ids([item.nodeid for item in items])
    ranks: dict[str, int] = {}
    for item in items:
        if not any(item.get_closest_marker(kind) for kind in KINDS):
            item.add_marker(kind_of(item.nodeid.removeprefix("tests/")))
        if item.get_closest_marker("xdist_group") is None:
            shared = "spark" if "spark" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(shared))
        group = group_of(item)
        ranks[group] = min(rank(group, item), ranks.get(group, len(LONGEST) + 1))
    groups = sorted(ranks, key=lambda group: ranks[group])
    waiting = [group for group in groups if group.startswith(WAITING)]
    busy = [group for group in groups if not group.startswith(WAITING)]
    places = {group: (place / len(kind), group) for kind in (busy, waiting) for place, group in enumerate(kind)}
    items.sort(key=lambda item: places[group_of(item)])


def pytest_collection_finish() -> None:
    """Exclude imported modules and collected tests from garbage collections, which begin now."""
    gc.collect()
    gc.freeze()
    gc.enable()


def group_of(item: pytest.Item) -> str:
    """Return the group of pytest-xdist that a test belongs to."""
    marker = item.get_closest_marker("xdist_group")
    assert marker is not None
    return str(marker.args[0])


def rank(group: str, item: pytest.Item) -> int:
    """Return the rank of a group, seen from one of its tests: the longest groups, then others, then unit tests."""
    for place, beginning in enumerate(LONGEST):
        if group.startswith(beginning):
            return place
    return len(LONGEST) + (item.get_closest_marker("unit") is not None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: Sequence[str]) -> None:
    """Check the tests of a worker before the controller distributes them."""
    refuse_duplicate_ids(ids)


def refuse_duplicate_ids(ids: Sequence[str]) -> None:
    """End the run if two tests have one node id: pytest-xdist identifies tests by id, and runs one of them."""
    duplicates = [nodeid for nodeid, count in Counter(ids).items() if count > 1]
    if duplicates:
        reason = (
            f"{len(duplicates)} node ids name more than one test, like {duplicates[0]}: pytest-xdist would run one of "
            "them only. Give each test its own id. If the ids are generated, run `make .venv/.test-ready`: this may be "
            "a version of pytest that pyproject.toml excludes."
        )
        pytest.exit(reason, returncode=pytest.ExitCode.USAGE_ERROR)
