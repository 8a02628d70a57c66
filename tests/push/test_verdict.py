"""What an attempt amounts to."""

import pytest

from dragoman.model.operations import PushConfig
from dragoman.net.egress import Reply
from dragoman.net.errors import AddressRefused, Broken, EgressError, TimedOut, Unreachable
from dragoman.push.schedule import Schedule
from dragoman.push.verdict import answered, unanswered
from dragoman.store.outbox import Due, Settled
from tests.push.rig import delivery

NOW_MS = 1_800_000_000_000
URL = "https://hooks.example.org/a"


def due(attempts: int = 0) -> Due:
    return Due(
        number=7,
        task_id="t",
        agent="echo",
        config=PushConfig(url=URL, secret="a secret of mine", token="a token"),
        host="https://hooks.example.org:443",
        delivery=delivery(b"{}"),
        attempts=attempts,
        made_ms=NOW_MS,
    )


def after(status: int, attempts: int = 0, **headers: str) -> Settled:
    reply = Reply(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, b"secrets of the receiver"
    )
    return answered(due(attempts), reply, Schedule(), NOW_MS, 0.5)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_a_receipt(status: int) -> None:
    assert after(status) == Settled(number=7, outcome="delivered")


def test_410_is_the_end() -> None:
    assert after(410) == Settled(number=7, outcome="gone", reason="HTTP 410")


@pytest.mark.parametrize("status", [400, 401, 404, 409, 500, 503])
def test_any_other_status_is_tried_again_and_its_host_was_reached(status: int) -> None:
    expected = Settled(number=7, outcome="retry", due_ms=NOW_MS + 1000, reason=f"HTTP {status}")
    assert after(status) == expected
    assert expected.reached


def test_a_redirect_is_a_failure_that_says_why() -> None:
    settled = after(302, location="http://169.254.169.254/")
    assert (settled.outcome, settled.reason) == ("retry", "HTTP 302: redirects are not followed")


@pytest.mark.parametrize(("status", "waited_ms"), [(429, 60_000), (503, 60_000), (500, 1000), (301, 1000)])
def test_retry_after_counts_where_it_is_meant(status: int, waited_ms: int) -> None:
    assert after(status, retry_after="60").due_ms == NOW_MS + waited_ms


def test_after_the_last_attempt_it_is_a_dead_letter() -> None:
    settled = after(500, attempts=7)
    assert (settled.outcome, settled.reason, settled.due_ms) == ("dead", "HTTP 500", 0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unreachable(URL, "…"), "no connection"),
        (AddressRefused(URL, "…"), "address refused"),
        (TimedOut(URL, 10.0), "no answer within 10 s"),
        (Broken(URL, "…"), "the connection broke before the answer"),
    ],
)
def test_without_an_answer_the_host_was_not_reached(error: EgressError, reason: str) -> None:
    settled = unanswered(due(), error, Schedule(), NOW_MS, 0.5)
    assert settled == Settled(number=7, outcome="retry", due_ms=NOW_MS + 1000, reason=reason, reached=False)
    assert unanswered(due(7), error, Schedule(), NOW_MS, 0.5).outcome == "dead"


def test_a_reason_holds_nothing_of_the_url_the_secrets_or_the_answer() -> None:
    reasons = [after(status).reason for status in (302, 400, 410, 500)]
    reasons.append(unanswered(due(), Unreachable(URL, "secret"), Schedule(), NOW_MS, 0.5).reason)
    assert not [reason for reason in reasons if "secret" in reason or "example" in reason]
