"""The log: one line for one event, in both forms."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from dragoman.telemetry.logs import log_to

log = logging.getLogger("dragoman.tests")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; afterwards logging is as it was."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    root.handlers = []
    yield io.StringIO()
    root.handlers = before
    root.setLevel(level)


def test_a_line_of_text_has_time_level_logger_and_message(stream: io.StringIO) -> None:
    log_to(stream, "info", "text")
    log.warning("%d of %d", 1, 2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning dragoman\.tests: 1 of 2\n", stream.getvalue())


def test_a_server_with_a_name_says_it_in_each_line(stream: io.StringIO) -> None:
    log_to(stream, "info", "text", "2")
    log.info("ready")
    assert stream.getvalue().endswith("Z info    [2] dragoman.tests: ready\n")
    log_to(stream, "info", "json", "2")
    log.info("ready")
    assert json.loads(stream.getvalue().splitlines()[1])["replica"] == "2"


def test_a_message_cannot_forge_a_line(stream: io.StringIO) -> None:
    log_to(stream, "info", "text")
    log.info("%s", "a\nb\x1b[2J\u2028c")
    assert stream.getvalue().endswith("a\\x0ab\\x1b[2J\\u2028c\n")
    assert len(stream.getvalue().splitlines()) == 1


def test_json_is_one_object_a_line_with_the_traceback_in_it(stream: io.StringIO) -> None:
    log_to(stream, "info", "json")
    try:
        raise RuntimeError("broken\n")
    except RuntimeError:
        log.exception("a\nb \udc80")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "dragoman.tests", "a\nb \\udc80")
    assert entry["exception"].startswith("Traceback")


def test_json_has_the_fields_that_came_with_the_record(stream: io.StringIO) -> None:
    log_to(stream, "info", "json")
    log.info("refused", extra={"fields": {"reason": "Forbidden", "level": "forged"}})
    entry = json.loads(stream.getvalue())
    assert (entry["reason"], entry["level"], entry["message"]) == ("Forbidden", "info", "refused")


def test_what_is_below_the_level_is_not_logged(stream: io.StringIO) -> None:
    log_to(stream, "warning", "text")
    log.info("not this")
    assert stream.getvalue() == ""
