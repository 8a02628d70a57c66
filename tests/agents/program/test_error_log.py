"""A program's standard error in the log, and how much of it is there."""

import logging

import pytest

from dragoman.agents.program.pipes import LINE_BYTES, LINE_CHARS, LINES_MAX, LINES_PER_S, ErrorLog

log = logging.getLogger("test.complaints")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_lines_are_logged_however_they_are_cut(caplog: pytest.LogCaptureFixture, size: int) -> None:
    said = "one\r\n\n  \ntwo é\tx\x1b[2J\nthree".encode()
    complaints = ErrorLog(log, "t", Clock())
    for at in range(0, len(said), size):
        complaints.feed(said[at : at + size])
    complaints.end()
    assert caplog.messages == ["t: one", "t: two é\tx�[2J", "t: three"]


def test_a_flood_is_counted_and_nothing_of_it_is_held(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = ErrorLog(log, "t", clock)
    for _ in range(100):
        complaints.feed(b"a\n" * 10_000)
    assert len(caplog.messages) == LINES_MAX
    clock.now_s += 0.9
    complaints.feed(b"still\n")
    assert len(caplog.messages) == LINES_MAX
    clock.now_s += 0.1
    complaints.feed(b"b\n" * 100)
    complaints.end()
    told = caplog.messages[LINES_MAX:]
    assert told[0] == f"t: {1_000_001 - LINES_MAX} lines of stderr were left out"
    assert told[1:-1] == ["t: b"] * LINES_PER_S
    assert told[-1] == f"t: {100 - LINES_PER_S} lines of stderr were left out"


def test_a_line_without_end_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    complaints = ErrorLog(log, "t", Clock())
    for _ in range(100):
        complaints.feed(b"x" * LINE_BYTES)
    complaints.feed(b"\nnext\n")
    assert caplog.messages == [f"t: {'x' * LINE_CHARS}…", "t: next"]
