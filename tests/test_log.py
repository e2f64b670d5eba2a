"""Log lines: one line per event, readable by people or programs, without secrets."""

import json
import logging
import warnings

import pytest

from edge import log, log_limit


class Lines:
    """The lines on standard error so far."""

    def __init__(self, capsys):
        self._capsys = capsys
        self._text = ""

    def getvalue(self):
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stderr(capsys):
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield Lines(capsys)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    logging.raiseExceptions = True


def test_json_is_one_object_a_line(stderr):
    log.configure("info", "json")
    logging.getLogger("edge.x").info("broker is %s", "gone", extra={"retry_in": 2.5, "url": "mqtt://b\n\u2028"})
    (line,) = stderr.getvalue().splitlines()
    event = json.loads(line)
    assert event["time"].endswith("+00:00")
    del event["time"]
    assert event == {
        "level": "info",
        "logger": "edge.x",
        "event": "broker is gone",
        "retry_in": 2.5,
        "url": "mqtt://b\n\u2028",
    }


def test_text_line_has_time_level_logger_event_and_fields(stderr):
    log.configure("info", "text")
    logging.getLogger("edge.x").warning("bad value", extra={"topic": "a/b", "reason": 'no "number"', "empty": ""})
    (line,) = stderr.getvalue().splitlines()
    assert line[20:] == 'WARNING edge.x bad value topic=a/b reason="no \\"number\\"" empty=""'


@pytest.mark.parametrize("form", ["text", "json"])
def test_control_characters_do_not_break_a_line(stderr, form):
    log.configure("info", form)
    logging.getLogger("edge.x").info("a\nb\x1b[31m\u2028c", extra={"key": "d\r\ne\u0085f"})
    assert len(stderr.getvalue().splitlines()) == 1
    assert "\x1b" not in stderr.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_exception_is_one_line_with_its_place(stderr, form):
    log.configure("info", form)
    try:
        int("x\ny")
    except ValueError:
        logging.getLogger("edge.x").exception("failed")
    (line,) = stderr.getvalue().splitlines()
    assert "ValueError: invalid literal" in line
    assert "test_log.py:" in line


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("message", "extra"),
    [
        ("connect", {"password": "hunter2"}),
        ("connect", {"access_token": "hunter2"}),
        ("Authorization: Bearer hunter2hunter2hunter2", {}),
        ("Authorization: Basic hunter2hunter2hunter2", {}),
        ("connect to mqtt://user:hunter2@broker", {}),
        ("body", {"text": '{"client_secret": "hunter2"}'}),
        ("x", {"url": "https://u:hunter2@h/"}),
    ],
)
def test_secrets_are_not_logged(stderr, form, message, extra):
    log.configure("debug", form)
    logging.getLogger("edge.x").info(message, extra=extra)
    assert "hunter2" not in stderr.getvalue()
    assert "***" in stderr.getvalue()


def test_levels_and_libraries(stderr):
    log.configure("info", "json")
    for name in ("uvicorn.access", "websockets.server", "amqtt.broker", "paho.mqtt", "transitions.core"):
        logging.getLogger(name).info("chatter")
    logging.getLogger("edge.x").debug("detail")
    assert stderr.getvalue() == ""
    logging.getLogger("amqtt.broker").warning("trouble")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old thing", stacklevel=1)
    assert [json.loads(line)["logger"] for line in stderr.getvalue().splitlines()] == ["amqtt.broker", "py.warnings"]


def test_without_a_terminal_lines_are_json(stderr):
    log.configure("info", "auto")
    logging.getLogger("edge.x").info("hello")
    assert json.loads(stderr.getvalue())["event"] == "hello"


def test_a_message_that_does_not_fit_its_arguments_is_logged_all_the_same(stderr):
    log.configure("info", "text")
    logging.getLogger("amqtt").error("%d readings", "many")
    assert "%d readings" in stderr.getvalue()


def lines_of(stderr):
    return [json.loads(line) for line in stderr.getvalue().splitlines()]


def test_a_source_that_repeats_itself_is_limited_and_the_rest_is_counted(stderr):
    log.configure("info", "json")
    library = logging.getLogger("amqtt.broker")
    for number in range(100):
        library.error(f"No data from (client @=127.0.0.1:{number})")
    library.error("something else")
    lines = lines_of(stderr)
    assert len(lines) == log_limit.BURST + 1
    assert lines[-1]["event"] == "something else"


def test_the_next_line_of_a_source_says_how_many_were_suppressed(stderr):
    log.configure("info", "json")
    logger = logging.getLogger("edge.x")

    def write(later):
        record = logger.makeRecord(logger.name, logging.INFO, "x.py", 1, "again", (), None)
        record.created += later
        logger.handle(record)

    for _ in range(log_limit.BURST + 7):
        write(0)
    write(log_limit.INTERVAL + 1)
    assert [line.get("suppressed") for line in lines_of(stderr)] == [None] * log_limit.BURST + [7]


def test_an_idle_source_is_reported_with_the_next_line_of_any_source(stderr):
    log.configure("info", "json")
    logger = logging.getLogger("edge.x")
    for _ in range(log_limit.BURST + 7):
        logger.handle(logger.makeRecord(logger.name, logging.INFO, "x.py", 1, "again", (), None))
    other = logger.makeRecord(logger.name, logging.INFO, "y.py", 1, "other", (), None)
    other.created += log_limit.QUIET + 1
    logger.handle(other)
    summary, last = lines_of(stderr)[-2:]
    assert (summary["event"], summary["of"], summary["suppressed"]) == ("log.suppressed", "again", 7)
    assert last["event"] == "other"


def test_a_clock_that_is_set_back_silences_nothing(stderr):
    log.configure("info", "json")
    logger = logging.getLogger("edge.x")
    for earlier in range(log_limit.BURST):
        record = logger.makeRecord(logger.name, logging.INFO, "x.py", 1, "again", (), None)
        record.created -= earlier * 1000
        logger.handle(record)
    assert len(lines_of(stderr)) == log_limit.BURST


def test_lines_of_level_debug_are_not_limited(stderr):
    log.configure("debug", "json")
    for _ in range(10 * log_limit.BURST):
        logging.getLogger("edge.x").debug("detail")
    assert len(lines_of(stderr)) == 10 * log_limit.BURST
