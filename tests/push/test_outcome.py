"""The result of an attempt: the outcome, the next attempt, and how much its host gets at once."""

import pytest
from msgspec.structs import replace

from dragoman.model.operations import PushConfig
from dragoman.net.errors import AddressRefused, Broken, EgressError, TimedOut, Unreachable
from dragoman.net.retry_after import retry_after_s
from dragoman.push.outcome import (
    DELAYS_S,
    WINDOW_MAX,
    WINDOW_START,
    WRITES_MAX,
    Abandon,
    AttemptResult,
    CannotSend,
    ReceiverAnswered,
    ReceiverSilent,
    Rewrite,
    Schedule,
    ServerFault,
    Window,
    Written,
    adjust,
    judge_write,
    settle,
)
from dragoman.store.outbox import Arrival, Due, Settled
from dragoman.store.receipts import digest_of_body
from tests.push.rig import delivery

NOW_MS = 1_800_000_000_000  # Fri, 15 Jan 2027 08:00:00 GMT
URL = "https://hooks.example.org/a"
QUICK, SLOW = 0.01, 2.0


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


def settled(result: AttemptResult, attempts: int = 0) -> Settled:
    return settle(Window(), due(attempts), result, Schedule(), NOW_MS, 0.5)[1]


def after(status: int, attempts: int = 0, retry_after: str | None = None) -> Settled:
    return settled(ReceiverAnswered(status, QUICK, retry_after), attempts)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_a_receipt(status: int) -> None:
    body = digest_of_body(b"{}")
    told = Arrival(number=7, at_ms=NOW_MS, status=status, took_ms=10, url="https://hooks.example.org/a", digest=body)
    assert after(status) == Settled(number=7, outcome="delivered", arrivals=(told,))


def test_what_is_kept_of_a_call_holds_no_secret_of_its_url() -> None:
    config = replace(due().config, url="https://hooks.example.org/a/s3cret?key=s3cret#s3cret")
    found = settle(Window(), replace(due(), config=config), ReceiverAnswered(204, QUICK), Schedule(), NOW_MS, 0.5)[1]
    assert "s3cret" not in repr(found)
    assert [each.url for each in found.arrivals] == ["https://hooks.example.org/a/…"]


def test_410_is_the_end() -> None:
    assert after(410) == Settled(number=7, outcome="gone", reason="HTTP 410")


@pytest.mark.parametrize("status", [400, 401, 404, 409, 500, 503])
def test_any_other_status_is_tried_again_and_its_host_was_reached(status: int) -> None:
    expected = Settled(number=7, outcome="retry", due_ms=NOW_MS + 1000, reason=f"HTTP {status}")
    assert after(status) == expected
    assert expected.reached


def test_a_redirect_is_a_failure_that_says_why() -> None:
    found = after(302)
    assert (found.outcome, found.reason) == ("retry", "HTTP 302: redirects are not followed")


@pytest.mark.parametrize(("status", "waited_ms"), [(429, 60_000), (503, 60_000), (500, 1000), (301, 1000)])
def test_retry_after_counts_where_it_is_meant(status: int, waited_ms: int) -> None:
    assert after(status, retry_after="60").due_ms == NOW_MS + waited_ms


def test_after_the_last_attempt_it_is_a_dead_letter() -> None:
    found = after(500, attempts=7)
    assert (found.outcome, found.reason, found.due_ms) == ("dead", "HTTP 500", 0)


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
    assert settled(ReceiverSilent(error)) == Settled(
        number=7, outcome="retry", due_ms=NOW_MS + 1000, reason=reason, reached=False
    )
    assert settled(ReceiverSilent(error), attempts=7).outcome == "dead"


def test_a_reason_holds_nothing_of_the_url_the_secrets_or_the_answer() -> None:
    reasons = [after(status).reason for status in (302, 400, 410, 500)]
    reasons.append(settled(ReceiverSilent(Unreachable(URL, "secret"))).reason)
    assert not [reason for reason in reasons if "secret" in reason or "example" in reason]


def test_what_can_never_be_sent_is_dead_at_once() -> None:
    assert settled(CannotSend("no URL")) == Settled(number=7, outcome="dead", reason="no URL")


def test_a_fault_of_this_server_is_tried_again_and_says_nothing_about_the_host() -> None:
    window, found = settle(Window(8, 3), due(), ServerFault(), Schedule(), NOW_MS, 0.5)
    assert (window, found.outcome, found.reached) == (Window(8, 3), "retry", True)


# The window of a host


@pytest.mark.parametrize(
    ("window", "result", "expected"),
    [
        (Window(4, 0), ReceiverAnswered(200, QUICK), Window(4, 1)),
        (Window(4, 3), ReceiverAnswered(200, QUICK), Window(8, 0)),
        (Window(WINDOW_MAX, WINDOW_MAX - 1), ReceiverAnswered(200, QUICK), Window(WINDOW_MAX, 0)),
        (Window(8, 3), ReceiverAnswered(200, 0.5), Window(8, 3)),
        (Window(8, 3), ReceiverAnswered(200, SLOW), Window(4, 0)),
        (Window(1, 0), ReceiverAnswered(200, SLOW), Window(1, 0)),
        (Window(8, 3), ReceiverAnswered(429, QUICK), Window(4, 0)),
        (Window(8, 3), ReceiverAnswered(500, QUICK), Window(4, 0)),
        (Window(8, 3), ReceiverAnswered(404, SLOW), Window(4, 0)),
        # A webhook that is wrong takes nothing from others of its host
        (Window(8, 3), ReceiverAnswered(301, QUICK), Window(8, 3)),
        (Window(8, 3), ReceiverAnswered(404, QUICK), Window(8, 3)),
        (Window(8, 3), ReceiverAnswered(410, QUICK), Window(8, 3)),
        (Window(8, 3), CannotSend("no URL"), Window(8, 3)),
        (Window(8, 3), ReceiverSilent(Broken(URL, "…")), Window(1, 0)),
    ],
)
def test_a_window_opens_for_a_quick_host_and_closes_for_a_slow_one(
    window: Window, result: AttemptResult, expected: Window
) -> None:
    assert adjust(window, result) == expected


def test_a_window_opens_up_to_64() -> None:
    window, sizes = Window(), {WINDOW_START}
    for _ in range(500):
        window = adjust(window, ReceiverAnswered(200, QUICK))
        sizes.add(window.size)
    assert sorted(sizes) == [4, 8, 16, 32, WINDOW_MAX]


# When it is tried again


def test_eight_attempts_are_made_and_the_ninth_is_not() -> None:
    assert [Schedule().delay_s(attempts, 0.5) for attempts in range(8)] == [1, 5, 30, 120, 600, 3600, 21600, None]


def test_delays_are_off_by_a_fifth_at_most_either_way() -> None:
    for attempts, delay_s in enumerate(DELAYS_S):
        assert Schedule().delay_s(attempts, 0.0) == pytest.approx(delay_s * 0.8)
        assert Schedule().delay_s(attempts, 1.0) == pytest.approx(delay_s * 1.2)


@pytest.mark.parametrize(("asked_s", "waited_s"), [(0, 5), (4, 5), (90, 90), (10**9, 21600)])
def test_what_a_receiver_asks_for_is_waited_for_up_to_six_hours(asked_s: float, waited_s: float) -> None:
    assert Schedule().delay_s(1, 0.5, asked_s) == waited_s


def test_a_receiver_that_asks_for_time_gets_no_more_attempts_than_others() -> None:
    assert Schedule().delay_s(7, 0.5, 60) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("120", 120),
        (" 7 ", 7),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
        ("9" * 400, 999_999_999),
        ("Fri, 15 Jan 2027 08:01:00 GMT", 60),
        ("Fri, 15 Jan 2027 08:01:00 -0000", 60),
        ("Friday, 15-Jan-27 08:02:00 GMT", 120),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
        ("Fri, 99 Jan 2027 07:00:00 GMT", None),
        ("Fri, 15 Jan 99999999999999999999 07:00:00 GMT", None),
        ("Fri, 15 Jan 2027 07:00:00 +99999999999", None),
    ],
)
def test_retry_after_is_a_number_or_a_date_or_nothing(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, NOW_MS) == seconds


# The write of an outcome


RETRY = Settled(number=7, outcome="retry", due_ms=NOW_MS)
FULL = OSError("disk full")


@pytest.mark.parametrize(
    ("outcome", "error", "failed", "stopping", "expected"),
    [
        (RETRY, None, 0, False, Written(("retry",), retry_ms=NOW_MS)),
        (Settled(number=7, outcome="delivered", before=(5, 6)), None, 0, False, Written(("delivered",) * 3)),
        (Settled(number=7, outcome="dead"), None, 0, False, Written(("dead",))),
        (Settled(number=7, outcome="gone"), None, 0, False, Written(("gone",))),
        (RETRY, FULL, 0, False, Rewrite(1)),
        (RETRY, FULL, WRITES_MAX - 1, False, Rewrite(WRITES_MAX)),
        (RETRY, FULL, WRITES_MAX, False, Abandon()),
        (RETRY, FULL, 0, True, Abandon()),
    ],
)
def test_an_outcome_is_written_until_it_is_left_to_its_claim(
    outcome: Settled, error: Exception | None, failed: int, stopping: bool, expected: object
) -> None:
    assert judge_write(outcome, error, failed, stopping=stopping) == expected
