"""When a call is made again: the waits, and whose asking for patience counts."""

from collections.abc import Awaitable, Callable

import pytest

from dragoman.client.errors import CallBroken, CallTimedOut, HttpRefusal, NoAnswer, NotReached, is_untaken
from dragoman.client.retries import Repetition, Retrier, Retries, RetryLater
from dragoman.model.errors import A2AError, InvalidParams, TooManyRequests, Unavailable

URL = "http://agent.example/"


class Clock:
    def now_ms(self) -> int:
        return 1_795_158_000_000  # 2026-11-20T07:00:00Z


class Time:
    """A clock that stands still but in pauses, which are over at once."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now_ms(self) -> int:
        return int(sum(self.pauses) * 1000)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def fails(*errors: Exception) -> Callable[[], Awaitable[str]]:
    left = list(errors)

    async def make() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return make


UNSENT = NotReached(URL, "no connection")
BROKEN = CallBroken(URL, "broke", sent=True)
LATE = CallTimedOut(URL, "no answer", "answer_s", sent=True)
NEVER = NotReached(URL, "refused", permanent=True)


@pytest.mark.parametrize(
    ("error", "repeatable", "again"),
    [
        (UNSENT, False, True),
        (BROKEN, False, False),
        (BROKEN, True, True),
        (LATE, True, False),
        (NEVER, True, False),
        (CallTimedOut(URL, "no connection", "connect_s", sent=False), False, True),
    ],
)
async def test_only_what_is_safe_is_made_again(error: NoAnswer, repeatable: bool, again: bool) -> None:
    maker = Retrier(pause=Time().pause)
    if again:
        assert await maker.call(fails(error), repeatable=repeatable) == "done"
    else:
        with pytest.raises(type(error)):
            await maker.call(fails(error), repeatable=repeatable)


@pytest.mark.parametrize(
    "error", [BROKEN, RetryLater(KeyError("busy"), None)], ids=["of an unknown fate", "refused for now"]
)
async def test_a_send_is_repeated_only_as_long_as_its_receiver_knows_it(error: Exception) -> None:
    time = Time()
    again = Retrier(Retries(attempts=9, first_s=1.0), pause=time.pause, chance=lambda: 1.0, clock=time)
    with pytest.raises((CallBroken, KeyError)):
        await again.call(fails(*[error] * 9), repeatable=True, within_s=7.5)
    assert time.pauses == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("dedupes", "said_s", "repeats_s"),
    [(None, 0.0, 0.0), (None, 600.0, 540.0), (False, 600.0, 0.0), (True, 0.0, float("inf"))],
)
def test_what_the_caller_says_counts_before_the_card(dedupes: bool | None, said_s: float, repeats_s: float) -> None:
    assert Retries(dedupes=dedupes).repeats_s(said_s) == repeats_s


@pytest.mark.parametrize(("chance", "expected"), [(1.0, [1.0, 2.0, 3.0, 3.0]), (0.0, [0.5, 1.0, 1.5, 1.5])])
async def test_waits_grow_up_to_a_bound_and_are_spread(chance: float, expected: list[float]) -> None:
    time = Time()
    again = Retrier(Retries(attempts=5, first_s=1.0, longest_s=3.0), pause=time.pause, chance=lambda: chance)
    assert await again.call(fails(*[UNSENT] * 4), repeatable=False) == "done"
    assert time.pauses == expected


def test_a_task_may_be_asked_for_any_number_of_times() -> None:
    assert Retrier(chance=lambda: 1.0).wait_s(100_000) == Retries().longest_s


def later(error: A2AError) -> RetryLater:
    error.untaken = True
    return RetryLater(error, 0.0)


@pytest.mark.parametrize(
    "last",
    [
        NotReached(URL, "no connection"),
        TooManyRequests("all", "full", 1),
        later(Unavailable("away")),
        RetryLater(Unavailable("a proxy gave up"), None),
        HttpRefusal(URL, 404),
    ],
    ids=repr,
)
async def test_a_call_that_may_have_arrived_once_is_not_said_to_be_untaken(last: Exception) -> None:
    """Not even as a refusal, which says that nothing was done."""
    again = Retrier(Retries(attempts=2), pause=Time().pause)
    if isinstance(last, TooManyRequests):
        last.untaken = True
    with pytest.raises(NoAnswer) as raised:
        await again.call(fails(CallBroken(URL, "broke", sent=True), last), repeatable=True)
    assert not is_untaken(raised.value)


@pytest.mark.parametrize(
    "last",
    [later(Unavailable("full")), later(TooManyRequests("all", "full", 1)), HttpRefusal(URL, 404)],
    ids=repr,
)
async def test_a_call_that_a_proxy_may_have_passed_on_is_not_said_to_be_untaken(last: Exception) -> None:
    """Not by a refusal of its repeat either."""
    again = Retrier(Retries(attempts=2), pause=Time().pause)
    with pytest.raises(HttpRefusal, match="502") as raised:
        await again.call(fails(RetryLater(HttpRefusal(URL, 502), None), last), repeatable=True)
    assert not is_untaken(raised.value)


async def test_a_call_that_a_proxy_may_have_passed_on_is_repeated_here_after_a_refusal() -> None:
    full = RetryLater(HttpRefusal(URL, 429), 1.0)
    full.error.untaken = True  # type: ignore[attr-defined]
    made = fails(RetryLater(HttpRefusal(URL, 502), None), full)
    again = Retrier(pause=Time().pause).call(made, repeatable=True, repetition=Repetition.UNLESS_UNTAKEN)
    assert await again == "done"


async def test_the_word_of_the_peer_itself_on_a_repeat_counts() -> None:
    with pytest.raises(InvalidParams):
        await Retrier(pause=Time().pause).call(fails(BROKEN, InvalidParams("message", "no")), repeatable=True)


async def test_a_refusal_of_a_repeat_says_that_it_is_one() -> None:
    refused = InvalidParams("message", "no")
    with pytest.raises(InvalidParams):
        await Retrier(pause=Time().pause).call(fails(refused), repeatable=True)
    assert not refused.repeated
    with pytest.raises(InvalidParams):
        await Retrier(pause=Time().pause).call(fails(BROKEN, refused), repeatable=True)
    assert refused.repeated


@pytest.mark.parametrize(
    ("error", "repetition", "again"),
    [
        (NotReached(URL, "no connection"), Repetition.HERE, True),
        (NotReached(URL, "no connection"), Repetition.UNLESS_UNTAKEN, False),
        (NotReached(URL, "no connection"), Repetition.NEVER, False),
        (later(Unavailable("away")), Repetition.HERE, True),
        (later(Unavailable("away")), Repetition.UNLESS_UNTAKEN, False),
        (RetryLater(Unavailable("a proxy gave up"), None), Repetition.UNLESS_UNTAKEN, True),
        (RetryLater(Unavailable("a proxy gave up"), None), Repetition.NEVER, False),
        (CallBroken(URL, "broke", sent=True), Repetition.UNLESS_UNTAKEN, True),
        (CallBroken(URL, "broke", sent=True), Repetition.NEVER, False),
    ],
)
async def test_a_call_that_its_caller_makes_elsewhere_is_not_made_again(
    error: Exception, repetition: Repetition, again: bool
) -> None:
    made = Retrier(pause=Time().pause).call(fails(error), repeatable=True, repetition=repetition)
    if again:
        assert await made == "done"
    else:
        with pytest.raises((NoAnswer, A2AError)) as raised:
            await made
        assert is_untaken(raised.value) == (repetition is Repetition.UNLESS_UNTAKEN or isinstance(error, NotReached))


async def test_the_error_in_a_later_is_raised_in_the_end() -> None:
    again = Retrier(Retries(attempts=2), pause=Time().pause)
    with pytest.raises(KeyError):
        await again.call(fails(*[RetryLater(KeyError("busy"), 1.0)] * 2), repeatable=False)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        ("Fri, 20 Nov 2026 07:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 06:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("٧", None),
        ("Fri, 99 Nov 2026 07:00:30 GMT", None),
    ],
)
def test_what_an_answer_asks_for_is_read(said: str, seconds: float | None) -> None:
    assert Retrier(clock=Clock()).after_s({"retry-after": said}) == seconds
