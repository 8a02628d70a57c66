"""When calls go out to an upstream that does not answer."""

from dragoman.agents.breaker import PAUSE_S_MAX, Breaker, State


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def opened(time: Time, failures: int = 3) -> Breaker:
    breaker = Breaker(failures, 10.0, time)
    for _ in range(failures):
        assert breaker.admit()
        breaker.record_failure()
    return breaker


def test_it_opens_after_so_many_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(3, 10.0, Time())
    for outcome in (
        breaker.record_failure,
        breaker.record_failure,
        breaker.record_success,
        breaker.record_failure,
        breaker.record_failure,
    ):
        assert breaker.admit()
        outcome()
    assert breaker.state is State.CLOSED
    breaker.record_failure()
    assert (breaker.state, breaker.admit(), breaker.wait_s) == (State.OPEN, False, 10.0)


def test_half_open_one_call_is_tried_and_its_success_closes_it() -> None:
    time = Time()
    breaker = opened(time)
    time.now_s += 10
    assert breaker.state is State.HALF_OPEN
    assert [breaker.admit(), breaker.admit()] == [True, False]
    assert breaker.wait_s > 0
    breaker.record_success()
    assert (breaker.state, breaker.admit(), breaker.wait_s) == (State.CLOSED, True, 0.0)


def test_a_trial_that_fails_opens_it_for_longer_up_to_a_limit() -> None:
    time = Time()
    breaker = opened(time)
    waits = []
    for _ in range(8):
        time.now_s += breaker.wait_s
        assert breaker.admit()
        breaker.record_failure()
        waits.append(breaker.wait_s)
    assert waits[:4] == [20.0, 40.0, 80.0, 160.0]
    assert waits[-1] == PAUSE_S_MAX


def test_an_upstream_may_be_gone_for_weeks() -> None:
    time = Time()
    breaker = opened(time)
    for _ in range(5000):
        time.now_s += breaker.wait_s
        assert breaker.admit()
        breaker.record_failure()
    assert breaker.wait_s == PAUSE_S_MAX


def test_calls_that_went_out_before_it_opened_do_not_keep_it_open_for_longer() -> None:
    time = Time()
    breaker = opened(time)
    breaker.record_failure()
    breaker.record_failure()
    assert breaker.wait_s == 10.0


def test_a_trial_that_was_given_up_lets_another_be_made() -> None:
    time = Time()
    breaker = opened(time)
    time.now_s += 10
    assert breaker.admit()
    breaker.record_unknown()
    assert breaker.admit()
    time.now_s += 10  # and one that never comes back keeps nobody waiting
    assert breaker.admit()


def test_what_else_shows_that_it_answers_lets_one_call_be_tried_at_once() -> None:
    time = Time()
    breaker = opened(time)
    assert breaker.half_open()
    assert breaker.state is State.HALF_OPEN
    assert [breaker.admit(), breaker.admit()] == [True, False]
    assert not breaker.half_open()  # that one is still out
    breaker.record_failure()
    assert (breaker.state, breaker.wait_s) == (State.OPEN, 20.0)
    assert not Breaker(3, 10.0, time).half_open()
