"""Where the facts of an event stand in its frames, and what is said of a task without any."""

import json

from dragoman.engine.admin.wire_facts import Truth, read_facts
from dragoman.engine.admin.wire_summary import describe


def test_a_time_is_exact_though_another_one_of_its_second_stands_before_it() -> None:
    at = "2026-11-29T10:00:00.250Z"
    frames = [json.dumps({"createdAt": "2026-11-29T10:00:00Z", "status": {"timestamp": at}})]
    (fact,) = read_facts([Truth("time", at)], frames)
    assert (fact.learned, fact.path) == ("same", "status.timestamp")
    (cut,) = read_facts([Truth("time", at)], [json.dumps({"createdAt": "2026-11-29T10:00:00Z"})])
    assert (cut.learned, cut.path) == ("other", "createdAt")


def test_nothing_is_promised_of_a_task_whose_log_is_gone() -> None:
    assert describe((), streams=True) == describe((), streams=False)
    assert describe((), streams=True).startswith("Unknown")
