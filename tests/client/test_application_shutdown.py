"""The shutdown of applications in separate processes: bounded, immediate at a second signal, without a traceback."""

import signal
import subprocess
import sys

import pytest
from client_profile import profile_text

from tests.support.waiting import PATIENCE, wait_for

HEAD = r"""
import asyncio, sys, time
from edge.client import Application
app = Application("lamps.jsap")

def say(word):
    sys.stdout.write(word + "\n")  # in one piece: handlers have threads of their own
    sys.stdout.flush()
"""

PATIENT = """
from edge.client import aggregator, handlers
aggregator.GRACE = handlers.GRACE = 10**6

@app.consumer("LAMPS")
async def other(change):
    say("waits")
    try:
        await asyncio.sleep(10**6)
    except asyncio.CancelledError:
        say("asked to end")
        raise
"""
"""A program that waits forever and reports the request to end."""

PLAIN_HANDLER = """
@app.aggregator("SEEN", "SET")
def slow(change, update):
    say("begun")
    time.sleep({seconds})
    update(lamp="urn:l", state="on").result()
    say("ended")

app.run()
say("over")
"""

PLAIN_MAIN = """
def main():
    say("begun")
    time.sleep({seconds})
    say("ended")

app.run(main)
say("over")
"""


@pytest.fixture
def start(empty_gateway, tmp_path):
    """Start a program with a profile for the gateway, and wait for its first output."""
    started = []

    def run(text):
        (tmp_path / "lamps.jsap").write_text(profile_text(empty_gateway.http_port, empty_gateway.ws_port))
        (tmp_path / "program.py").write_text(HEAD + text)
        out, err = tmp_path / "out", tmp_path / "err"
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "program.py"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr
            )
        process.received, process.complained = out.read_text, err.read_text
        started.append(process)
        wait_for(lambda: "begun" in process.received(), what="the program")
        return process

    yield run
    for process in started:
        process.kill()
        process.stdin.close()
        process.wait(10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", [PLAIN_HANDLER, PLAIN_MAIN], ids=["handler", "main"])
def test_a_plain_function_has_time_to_end(start, program, number):
    process = start(program.format(seconds=1))
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert process.received() == "begun\nended\nover\n"
    assert process.complained() == ""


@pytest.mark.parametrize("program", [PLAIN_HANDLER, PLAIN_MAIN], ids=["handler", "main"])
def test_a_plain_function_is_not_awaited_forever(start, program):
    process = start(program.format(seconds=10**6))
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert process.received() == "begun\nover\n"
    assert process.complained() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", [PLAIN_HANDLER, PLAIN_MAIN], ids=["handler", "main"])
def test_a_second_signal_ends_the_program_at_once(start, program, number):
    process = start(PATIENT + program.format(seconds=10**6))
    wait_for(lambda: "waits" in process.received(), what="the consumer")
    process.send_signal(number)
    wait_for(lambda: "asked to end" in process.received(), what="the first signal")
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert sorted(process.received().splitlines()) == ["asked to end", "begun", "over", "waits"]
    assert process.complained() == ""


def test_a_second_signal_abandons_pending_updates(start, empty_gateway):
    process = start(
        PATIENT
        + """
@app.aggregator("SEEN", "SET", repeat=True)
async def light(change, update):
    say("begun")
    await asyncio.to_thread(input)
    await update(lamp="urn:l", state="on")
    say("sent")

app.run()
"""
    )
    wait_for(lambda: "waits" in process.received(), what="the consumer")
    empty_gateway.freeze()
    try:
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_for(lambda: "sent" in process.received(), what="the update")
        process.send_signal(signal.SIGINT)
        wait_for(lambda: "asked to end" in process.received(), what="the first signal")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.complained() == ""
    finally:
        empty_gateway.thaw()


def test_exceptions_of_a_plain_function_are_raised(start):
    process = start("""
def main():
    say("begun")
    raise StopIteration

try:
    app.run(main)
except RuntimeError as error:
    say(type(error.__cause__).__name__)
def leave():
    sys.exit(7)
app = Application("lamps.jsap")
app.run(leave)
""")
    assert process.wait(PATIENCE) == 7
    assert process.received() == "begun\nStopIteration\n"
