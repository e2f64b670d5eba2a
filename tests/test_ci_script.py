"""The stages of `.ci/run`, with a short script in place of each program that it runs."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "run"
PYTHON = """
case $* in
  *--collect-only*) echo "1 tests collected in 0.1s" ;;
  *images.boot_test*) BOOT_TEST ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    """Return a directory with the script, in which every stage succeeds at once."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci" / "run")
    program(tmp_path / "images" / "build", 'mkdir -p "$4"; touch "$4/box.img"; echo built')
    program(tmp_path / ".venv" / "bin" / "edge", "echo counted")
    boot_test(tmp_path, "echo booted")
    program(tmp_path / "bin" / "make", "echo tested")
    program(tmp_path / "bin" / "apt-get")
    program(tmp_path / "bin" / "id", "echo 0")
    program(tmp_path / "bin" / "uname", "echo x86_64")
    return tmp_path


def program(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def boot_test(checkout, text):
    program(checkout / ".venv" / "bin" / "python", PYTHON.replace("BOOT_TEST", text))


def start(checkout):
    return subprocess.Popen(
        [checkout / ".ci" / "run"],
        env={**os.environ, "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(checkout):
    """Return the exit code, the output before the summary, and the summary without durations."""
    process = start(checkout)
    output, _ = process.communicate(timeout=60)
    before, _, summary = output.partition("\n== summary")
    return process.returncode, before, [line.partition(":")[0] for line in summary.splitlines()[1:]]


def is_alive(pid):
    """Return whether a process runs. An orphan that has ended may wait for its new parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_end(pid):
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def test_the_summary_lists_each_stage(checkout):
    code, output, summary = run(checkout)
    assert code == 0
    assert output.index("tested") < output.index("counted") < output.index("built") < output.index("booted")
    assert summary == [
        "ok       packages",
        "ok       lint",
        "ok       packages for images",
        "ok       tests",
        "ok       results",
        "ok       work",
        "ok       rest of the image and its boot test",
        "ok       image",
        "ok       boot test with updates",
    ]


def test_the_image_is_booted_while_the_tests_run(checkout):
    boot_test(checkout, f"touch {checkout}/booting")
    program(checkout / "bin" / "make", f'[ "$1" = lint ] || until [ -e {checkout}/booting ]; do sleep 0.02; done')
    code, _, _ = run(checkout)
    assert code == 0


def test_a_failed_boot_test_fails_the_run_and_leaves_no_process(checkout):
    boot_test(checkout, f"sleep 600 & echo $! >{checkout}/qemu; echo no answer; exit 3")
    code, output, summary = run(checkout)
    assert code == 3
    assert "no answer" in output
    assert "FAILED   boot test with updates" in summary
    assert "FAILED   rest of the image and its boot test" in summary
    wait_for_end(int((checkout / "qemu").read_text()))


def test_a_failed_image_is_not_booted(checkout):
    program(checkout / "images" / "build", "echo no space; exit 4")
    code, output, summary = run(checkout)
    assert code == 4
    assert "no space" in output
    assert "booted" not in output
    assert "FAILED   image" in summary


def test_failed_tests_end_the_boot_test(checkout):
    boot_test(checkout, f"echo $$ >{checkout}/boot; sleep 600 & echo $! >{checkout}/qemu; wait")
    wait_for_boot = f"until [ -s {checkout}/qemu ]; do sleep 0.02; done"
    program(checkout / "bin" / "make", f'[ "$1" = lint ] || {{ {wait_for_boot}; exit 2; }}')
    code, _, summary = run(checkout)
    assert code == 2
    assert "FAILED   tests" in summary
    assert any(line.startswith("ended    image and boot test") for line in summary)
    for name in ("boot", "qemu"):
        wait_for_end(int((checkout / name).read_text()))


def test_a_cancelled_run_ends_the_boot_test(checkout):
    boot_test(checkout, f"sleep 600 & echo $! >{checkout}/qemu; wait")
    program(checkout / "bin" / "make", f'[ "$1" = lint ] || {{ echo $$ >{checkout}/tests; exec sleep 600; }}')
    process = start(checkout)
    deadline = time.monotonic() + 60
    while not all((checkout / name).exists() and (checkout / name).read_text() for name in ("qemu", "tests")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    os.kill(int((checkout / "tests").read_text()), signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode != 0
    wait_for_end(int((checkout / "qemu").read_text()))


def test_a_run_without_a_mirror_leaves_the_image_out(checkout):
    program(
        checkout / ".venv" / "bin" / "python",
        'case $* in "-c "*) exit 1 ;; *--collect-only*) echo "1 tests collected in 0.1s" ;; esac',
    )
    code, output, summary = run(checkout)
    assert code == 0
    assert "built" not in output
    assert any(line.startswith("left out image and boot test") for line in summary)
