"""The doctor's checks of what an agent does with messages, by recorded outcomes; and the summary of conformance."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.cli.doctor.conformance import judge_rules
from dragoman.doctor.checks import CHECKS
from dragoman.doctor.checks.behavior import BEHAVIOR_CHECKS
from dragoman.doctor.finding import Color, judge_all
from dragoman.doctor.observation import Attempt, AttemptOutcome, Observations
from dragoman.doctor.trial import TOO_SLOW
from tests.doctor.catalogue import FAULTS
from tests.doctor.recorded import HEALTHY, RPC, colors

DONE = AttemptOutcome(
    kind="Task", task_id="t", context_id="c", state="TASK_STATE_COMPLETED", ended=True, elapsed_ms=9.0
)
NOT_FOUND = AttemptOutcome(error="TaskNotFound")
LATE = AttemptOutcome(failure=TOO_SLOW)
STREAM = AttemptOutcome(
    kind="Task",
    task_id="s",
    context_id="d",
    state="TASK_STATE_COMPLETED",
    ended=True,
    events=("Task", "ArtifactUpdate", "StatusUpdate"),
    event_ids=("1", "2", "3"),
    first_ms=5.0,
)
GOOD = {
    Attempt.SEND: DONE,
    Attempt.REPEAT: DONE,
    Attempt.STREAM: STREAM,
    Attempt.RESUME: replace(STREAM, events=STREAM.events[1:], event_ids=("2", "3")),
    Attempt.SEND_TO_UNKNOWN: NOT_FOUND,
    Attempt.BEGIN: AttemptOutcome(kind="Task", task_id="b", context_id="e", state="TASK_STATE_WORKING"),
    Attempt.GET: DONE,
    Attempt.LIST: AttemptOutcome(kind="TaskList", listed=("x", "t")),
    Attempt.FOREIGN: NOT_FOUND,
    Attempt.WEBHOOK: AttemptOutcome(error="InvalidParams"),
    Attempt.CANCEL: AttemptOutcome(kind="Task", task_id="b", state="TASK_STATE_CANCELED", ended=True),
    Attempt.CANCEL_ENDED: AttemptOutcome(error="TaskNotCancelable"),
    Attempt.SUBSCRIBE_ENDED: AttemptOutcome(error="UnsupportedOperation"),
}
ACTIVE = replace(HEALTHY, tried_at=RPC, attempts=GOOD)


def but(attempt: Attempt, came: AttemptOutcome | None, **more: Any) -> Observations:
    """The agent without faults, with another outcome of one attempt; None: it was not made."""
    attempts = {name: outcome for name, outcome in GOOD.items() if name is not attempt or came is not None}
    if came is not None:
        attempts[attempt] = came
    return replace(ACTIVE, attempts=attempts, **more)


OLD = replace(RPC, interface=replace(RPC.interface, dialect="0.3"))
PROMISES = replace(RPC, interface=replace(RPC.interface, dedupes_s=600.0))
OTHER = replace(DONE, task_id="another")
ACCEPTED = AttemptOutcome(kind="PushConfig", task_id="h")

CASES = [
    ("message-answered", HEALTHY, "grey"),
    ("message-answered", ACTIVE, "green"),
    ("message-answered", but(Attempt.SEND, LATE), "grey"),
    ("message-answered", but(Attempt.SEND, AttemptOutcome(error="Unauthorized")), "grey"),
    ("message-answered", but(Attempt.SEND, AttemptOutcome(error="InternalError")), "red"),
    ("message-answered", but(Attempt.SEND, AttemptOutcome(failure="the connection broke")), "red"),
    ("message-blocks", ACTIVE, "green"),
    ("message-blocks", but(Attempt.SEND, replace(DONE, state="TASK_STATE_INPUT_REQUIRED", ended=False)), "green"),
    ("message-blocks", but(Attempt.SEND, replace(DONE, state="TASK_STATE_WORKING", ended=False)), "red"),
    ("message-blocks", but(Attempt.SEND, AttemptOutcome(kind="Message", context_id="c")), ""),
    ("message-context", ACTIVE, "green"),
    ("message-context", but(Attempt.SEND, AttemptOutcome(kind="Message")), "red"),
    ("message-context", but(Attempt.SEND, AttemptOutcome(kind="Message"), tried_at=OLD), ""),
    ("message-context", but(Attempt.SEND, replace(DONE, context_id=""), tried_at=OLD), "red"),
    ("message-context", but(Attempt.BEGIN, replace(DONE, task_id="b")), "red"),
    ("message-task", ACTIVE, "green"),
    ("message-task", but(Attempt.BEGIN, DONE), "red"),
    ("task-read", but(Attempt.GET, replace(DONE, state="TASK_STATE_WORKING", ended=False)), "red"),
    ("message-repeated", ACTIVE, "green"),
    ("message-repeated", but(Attempt.REPEAT, OTHER), "grey"),
    ("message-repeated", but(Attempt.REPEAT, OTHER, tried_at=PROMISES), "red"),
    ("message-to-unknown", ACTIVE, "green"),
    ("message-to-unknown", but(Attempt.SEND_TO_UNKNOWN, DONE), "red"),
    ("stream", ACTIVE, "green"),
    ("stream", but(Attempt.STREAM, AttemptOutcome(error="UnsupportedOperation")), "red"),
    ("stream", but(Attempt.STREAM, None), ""),
    ("stream-ends", but(Attempt.STREAM, replace(STREAM, state="TASK_STATE_WORKING", ended=False)), "red"),
    ("stream-ends", but(Attempt.STREAM, replace(STREAM, state="TASK_STATE_INPUT_REQUIRED", ended=False)), "green"),
    ("stream-ends", but(Attempt.STREAM, AttemptOutcome(kind="Message", events=("Message",), event_ids=("",))), "green"),
    ("stream-begins", but(Attempt.STREAM, replace(STREAM, events=("StatusUpdate",))), "red"),
    ("stream-begins", but(Attempt.STREAM, replace(STREAM, events=("StatusUpdate",)), tried_at=OLD), ""),
    ("left-running", ACTIVE, ""),
    ("left-running", but(Attempt.LEFT, AttemptOutcome(kind="TaskList", listed=("t",))), "yellow"),
    ("stream-first-update", ACTIVE, "green"),
    ("stream-first-update", but(Attempt.STREAM, replace(STREAM, first_ms=9_000.0)), "yellow"),
    ("stream-resumed", ACTIVE, "green"),
    ("stream-resumed", but(Attempt.RESUME, None), "grey"),
    ("stream-resumed", but(Attempt.RESUME, replace(STREAM, event_ids=("3",))), "yellow"),
    ("stream-resumed", but(Attempt.RESUME, AttemptOutcome(error="UnsupportedOperation")), "yellow"),
    ("subscribe", but(Attempt.SUBSCRIBE, STREAM), "green"),
    ("subscribe", but(Attempt.SUBSCRIBE, AttemptOutcome(error="UnsupportedOperation")), "grey"),
    ("cancel", ACTIVE, "green"),
    ("cancel", but(Attempt.CANCEL, AttemptOutcome(error="TaskNotCancelable")), "grey"),
    ("cancel", but(Attempt.CANCEL, AttemptOutcome(error="InternalError")), "yellow"),
    ("cancel", but(Attempt.CANCEL, replace(DONE, state="TASK_STATE_WORKING", ended=False)), "grey"),
    ("task-read", ACTIVE, "green"),
    ("task-read", but(Attempt.GET, NOT_FOUND), "red"),
    ("list", ACTIVE, "green"),
    ("list", but(Attempt.LIST, AttemptOutcome(error="MethodNotFound")), "yellow"),
    ("list", but(Attempt.LIST, AttemptOutcome(error="MethodNotFound"), tried_at=OLD), ""),
    ("task-listed", ACTIVE, "green"),
    ("task-listed", but(Attempt.LIST, AttemptOutcome(kind="TaskList", listed=("x",))), "red"),
    ("task-foreign", ACTIVE, "green"),
    ("task-foreign", but(Attempt.FOREIGN, DONE), "red"),
    ("task-foreign", but(Attempt.FOREIGN, None), "grey"),
    ("task-foreign", but(Attempt.FOREIGN, AttemptOutcome(error="Unauthorized")), "grey"),
    ("task-foreign", but(Attempt.FOREIGN, AttemptOutcome(error="InternalError")), "yellow"),
    ("cancel-ended", ACTIVE, "green"),
    ("cancel-ended", but(Attempt.CANCEL_ENDED, DONE), "red"),
    ("subscribe-ended", ACTIVE, "green"),
    ("subscribe-ended", but(Attempt.SUBSCRIBE_ENDED, STREAM), "red"),
    ("subscribe-ended", but(Attempt.SUBSCRIBE_ENDED, STREAM, tried_at=OLD), ""),
    ("webhook-address", ACTIVE, "green"),
    ("webhook-address", but(Attempt.WEBHOOK, AttemptOutcome(error="PushNotificationNotSupported")), "green"),
    ("webhook-address", but(Attempt.WEBHOOK, ACCEPTED), "red"),
    ("webhook-address", but(Attempt.WEBHOOK, ACCEPTED, public=False), "yellow"),
]


@pytest.mark.parametrize(("name", "seen", "expected"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])
def test_a_check_says_what_it_saw(name: str, seen: Observations, expected: str) -> None:
    assert colors(CHECKS, name, seen) == ([expected] if expected else [])


def test_a_vendors_dialect_is_not_measured_by_the_rules_of_a2a() -> None:
    vendors = replace(RPC, interface=replace(RPC.interface, dialect="kaos"))
    attempts = {**GOOD, Attempt.CANCEL_ENDED: DONE, Attempt.STREAM: NOT_FOUND, Attempt.SEND_TO_UNKNOWN: DONE}
    seen = replace(ACTIVE, card={"name": "a"}, endpoints=(vendors,), tried_at=vendors, attempts=attempts)
    found = {each.check: each.color for each in judge_all(CHECKS, seen)}
    assert Color.RED not in found.values()
    assert found["card-fields"] is Color.GREY
    assert found["task-read"] is Color.GREEN


def test_every_check_is_tried_above_with_right_and_wrong() -> None:
    planted = {each.check for each in FAULTS}
    for check in BEHAVIOR_CHECKS:
        said = {expected for name, _, expected in CASES if name == check.name}
        assert check.name in planted or said & {"green", ""}, check.name
        assert check.name in planted or said & {"red", "yellow", "grey"}, check.name


def test_an_agent_that_does_everything_right_has_no_other_colour() -> None:
    assert {each.color for each in judge_all(BEHAVIOR_CHECKS, ACTIVE)} == {Color.GREEN}


def test_without_messages_one_finding_says_how_to_send_them() -> None:
    (finding,) = judge_all(BEHAVIOR_CHECKS, HEALTHY)
    assert (finding.check, finding.color) == ("message-answered", Color.GREY)
    assert "--active" in finding.observed


@pytest.mark.parametrize("attempt", list(Attempt))
def test_an_attempt_that_took_too_long_is_never_red(attempt: Attempt) -> None:
    seen = but(attempt, LATE)
    if attempt is Attempt.SEND:  # then the task that is read is that of the next message
        seen = replace(seen, attempts={**seen.attempts, Attempt.BEGIN: replace(GOOD[Attempt.BEGIN], task_id="t")})
    assert Color.RED not in {each.color for each in judge_all(BEHAVIOR_CHECKS, seen)}


def test_a_rule_passes_only_if_it_was_seen_to_hold() -> None:
    rules = {rule.id: rule.result for rule in judge_rules(CHECKS, ACTIVE)}
    assert "fail" not in rules.values()
    assert rules["task-foreign"] == rules["stream"] == "pass"
    without = {rule.id: rule for rule in judge_rules(CHECKS, but(Attempt.FOREIGN, None))}
    assert without["task-foreign"].result == "not measured"
    assert "--second-key" in (without["task-foreign"].observed or "")
    broken = {rule.id: rule.result for rule in judge_rules(CHECKS, but(Attempt.FOREIGN, DONE))}
    assert [name for name, result in broken.items() if result == "fail"] == ["task-foreign"]
    assert "card-caching" not in rules
