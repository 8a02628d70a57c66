"""The rows of the state machine of streams: each decision by itself, without a peer."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.client.errors import CallBroken, CallTimedOut, HttpRefusal, NoToken, NotReached, StreamLost
from dragoman.client.recovery import (
    SETTLES_S,
    Agree,
    Circumstances,
    Fail,
    Failure,
    Finish,
    PieceSource,
    ReadAgain,
    Reopen,
    StreamRecovery,
    UpdateVerdict,
    begin_piece,
    end_piece,
    judge,
    judge_final,
    open_piece,
    start,
    take_news,
)
from dragoman.model.errors import (
    InternalError,
    InvalidParams,
    MethodNotFound,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import StreamMessage, Subscribe
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

URL = "http://agent"
WORKING, ASKS, DONE, FAILED = (
    TaskStatus(state=state, timestamp="")
    for state in (TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED, TaskState.FAILED)
)
BROKEN = CallBroken(URL, "broke", sent=True)
MESSAGE = Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),))
CHUNK = ArtifactUpdate(task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=(Part(text="x"),)))


def sending(**more: Any) -> StreamRecovery:
    """The state of a send after its first piece."""
    begun = start(StreamMessage(message=MESSAGE), streams=True, subscribes=True, mend_s=10.0, after="")
    return replace(begun, **{"first": False, "begun": True, **more})


def subscribing(**more: Any) -> StreamRecovery:
    """The state of a subscription after its first piece."""
    begun = start(Subscribe(id="t"), streams=True, subscribes=True, mend_s=10.0, after="")
    return replace(begun, **{"first": False, "begun": True, **more})


def known(**more: Any) -> Circumstances:
    return Circumstances(**{"task_id": "t", "status": WORKING, **more})


def task(status: TaskStatus) -> Task:
    return Task(id="t", context_id="c", status=status)


def update(status: TaskStatus) -> StatusUpdate:
    return StatusUpdate(task_id="t", context_id="c", status=status)


# The next source


@pytest.mark.parametrize(
    ("way", "state", "circumstances", "error", "source"),
    [
        ("numbered", sending(), known(event_id="7"), BROKEN, PieceSource.RESUME),
        ("numbered", sending(), known(event_id="7"), None, PieceSource.RESUME),
        ("repeated", sending(), Circumstances(recognises=True), BROKEN, PieceSource.CALL),
        ("unnumbered", sending(), known(), BROKEN, PieceSource.READ),
        ("unnumbered", sending(resumes=False), known(event_id="7"), BROKEN, PieceSource.READ),
        ("unnumbered", sending(source=PieceSource.READ), known(), None, PieceSource.SUBSCRIBE),
        ("unnumbered", sending(source=PieceSource.SUBSCRIBE), known(), BROKEN, PieceSource.READ),
        ("polled", sending(source=PieceSource.READ), known(), BROKEN, PieceSource.READ),
        ("polled", sending(source=PieceSource.READ, subscribes=False), known(), None, PieceSource.READ),
        ("polled", sending(source=PieceSource.SUBSCRIBE, begun=False), known(), None, PieceSource.READ),
    ],
)
def test_the_next_source_follows_from_what_the_agent_can_do(
    way: str, state: StreamRecovery, circumstances: Circumstances, error: Failure | None, source: PieceSource
) -> None:
    after, action = end_piece(state, circumstances, error)
    assert isinstance(action, Reopen)
    assert (after.source, after.first) == (source, False), way


def test_an_acknowledgement_of_a_subscription_shows_that_the_agent_has_none() -> None:
    after, _ = end_piece(sending(source=PieceSource.SUBSCRIBE, begun=False), known(), None)
    assert not after.subscribes


@pytest.mark.parametrize(
    "state", [sending(), subscribing(source=PieceSource.CALL)], ids=["a send that is forgotten", "a subscription"]
)
def test_a_stream_that_named_no_task_is_lost(state: StreamRecovery) -> None:
    _, action = end_piece(state, Circumstances(), None)
    assert isinstance(action, Fail)
    assert isinstance(action.error, StreamLost)


# The waits


def test_a_subscription_right_after_a_read_does_not_wait() -> None:
    assert end_piece(sending(source=PieceSource.READ), known(), None)[1] == Reopen(0)


def test_a_hint_takes_the_place_of_the_first_wait_only() -> None:
    state, action = end_piece(sending(), known(retry_ms=700), None)
    assert action == Reopen(1, 0.7)
    assert end_piece(state, known(retry_ms=700), BROKEN)[1] == Reopen(2)


def test_an_agent_that_stays_silent_is_given_up_after_its_time() -> None:
    state, _ = end_piece(sending(), known(now_s=100.0), BROKEN)
    state, action = end_piece(state, known(now_s=109.9), BROKEN)
    assert isinstance(action, Reopen)
    _, action = end_piece(state, known(now_s=110.0, event_id="7"), BROKEN)
    assert isinstance(action, Fail)
    assert isinstance(action.error, StreamLost)
    assert (action.error.task_id, action.error.event_id) == ("t", "7")


def test_a_piece_that_ends_properly_ends_the_silence() -> None:
    state, _ = end_piece(sending(), known(now_s=100.0), BROKEN)
    state, _ = end_piece(state, known(now_s=105.0), None)
    _, action = end_piece(state, known(now_s=110.0), BROKEN)
    assert isinstance(action, Reopen)


def test_news_end_the_silence() -> None:
    state, _ = end_piece(sending(), known(now_s=100.0), BROKEN)
    _, action = end_piece(take_news(state), known(now_s=110.0), BROKEN)
    assert action == Reopen(1)


# Errors


@pytest.mark.parametrize(
    ("state", "circumstances", "error", "fails"),
    [
        # A send that may not have arrived
        (sending(first=True), Circumstances(), NotReached(URL, "refused"), True),
        (sending(first=True), Circumstances(recognises=True), BROKEN, False),
        (sending(first=True), Circumstances(recognises=True), CallTimedOut(URL, "late", "answer_s", sent=True), True),
        (sending(), Circumstances(recognises=True), CallTimedOut(URL, "late", "answer_s", sent=True), False),
        # A broken connection
        (sending(), known(), BROKEN, False),
        (sending(), known(), NotReached(URL, "refused"), False),
        (subscribing(first=True), Circumstances(task_id="t"), BROKEN, False),
        (subscribing(first=True), Circumstances(task_id="t"), NotReached(URL, "refused"), True),
        # A proxy
        (sending(begun=False), known(), HttpRefusal(URL, 502), False),
        (sending(begun=False), known(), HttpRefusal(URL, 429), False),
        (sending(begun=False), known(), HttpRefusal(URL, 404), True),
        (sending(first=True), Circumstances(), HttpRefusal(URL, 502), True),
        # Credentials
        (sending(begun=False), known(), NoToken(URL, "none"), False),
        (sending(begun=False), known(), NoToken(URL, "none", permanent=True), True),
        # The agent's own errors
        (sending(source=PieceSource.RESUME), known(), Unavailable("busy"), True),
        (sending(source=PieceSource.READ, begun=False), known(), Unavailable("busy"), False),
        (sending(source=PieceSource.READ, begun=False), known(), InternalError("fault"), False),
        (sending(source=PieceSource.READ, begun=False), known(), TaskNotFound("t"), True),
        (sending(source=PieceSource.READ, begun=False), known(), InvalidParams("id", "bad"), True),
        (sending(first=True, begun=False), Circumstances(), InternalError("fault"), True),
    ],
)
def test_an_error_ends_the_stream_or_not(
    state: StreamRecovery, circumstances: Circumstances, error: Failure, fails: bool
) -> None:
    _, action = end_piece(state, circumstances, error)
    assert isinstance(action, Fail) is fails
    if isinstance(action, Fail):
        assert action.error is error


@pytest.mark.parametrize("recognises", [False, True])
def test_the_fate_of_a_send_is_unknown_unless_the_agent_recognises_it(recognises: bool) -> None:
    _, action = end_piece(sending(first=True), Circumstances(recognises=recognises), BROKEN)
    assert action == (Reopen(1) if recognises else Fail(BROKEN, fate_unknown=True))


@pytest.mark.parametrize(
    ("state", "lacks"),
    [
        (sending(source=PieceSource.RESUME, begun=False), "resumes"),
        (sending(source=PieceSource.SUBSCRIBE, begun=False), "subscribes"),
    ],
)
@pytest.mark.parametrize("error", [MethodNotFound("m"), InvalidParams("id", "bad")])
def test_an_agent_that_lacks_a_way_is_asked_by_another(state: StreamRecovery, lacks: str, error: Failure) -> None:
    after, action = end_piece(state, known(event_id="7"), error)
    assert isinstance(action, Reopen)
    assert getattr(state, lacks)
    assert not getattr(after, lacks)


def test_a_subscription_at_an_agent_without_the_method_is_polled() -> None:
    state = subscribing(first=True, begun=False)
    after, _ = end_piece(state, Circumstances(task_id="t"), MethodNotFound("m"))
    assert (after.source, after.resumes, after.subscribes) == (PieceSource.READ, False, False)


def test_a_task_that_ended_before_it_could_be_subscribed_to_is_read() -> None:
    state, refusal = subscribing(first=True, begun=False), UnsupportedOperation("it has ended")
    after, _ = end_piece(state, known(status=WORKING), refusal)
    assert (after.source, after.resumes, after.subscribes) == (PieceSource.READ, False, False)
    _, action = end_piece(state, Circumstances(task_id="t"), refusal)
    assert action == Fail(refusal), "whoever has not read the task is told"


# The end


@pytest.mark.parametrize(
    ("state", "circumstances", "error", "over"),
    [
        (sending(), known(status=DONE), None, True),
        (sending(), known(status=DONE), BROKEN, True),
        (sending(), known(status=ASKS), None, True),
        (sending(), known(status=ASKS), BROKEN, True),
        (sending(), Circumstances(message=True), None, True),
        (sending(), known(), None, False),
        # The question that the message answers is no end
        (sending(question=ASKS), known(status=ASKS), BROKEN, False),
        (sending(question=ASKS, source=PieceSource.READ), known(status=ASKS), None, False),
        # A subscription goes on through questions, unless the agent ends it there for good
        (subscribing(), known(status=ASKS), BROKEN, False),
        (subscribing(), known(status=ASKS), None, True),
        (subscribing(), known(status=ASKS, retry_ms=700), None, False),
        (subscribing(source=PieceSource.READ), known(status=ASKS), None, False),
        (subscribing(source=PieceSource.READ, subscribes=False), known(status=ASKS), None, True),
    ],
)
def test_a_stream_is_over_when_nothing_more_is_to_come(
    state: StreamRecovery, circumstances: Circumstances, error: Failure | None, over: bool
) -> None:
    assert isinstance(end_piece(state, circumstances, error)[1], Finish) is over


@pytest.mark.parametrize("doubtful", [False, True])
def test_only_a_doubtful_stream_is_compared(doubtful: bool) -> None:
    assert end_piece(sending(doubtful=doubtful), known(status=DONE), None)[1] == Finish(compare=doubtful)


def test_a_held_end_is_compared_although_the_task_has_none_yet() -> None:
    assert end_piece(sending(doubtful=True), known(), None, held=True)[1] == Finish(compare=True)


# Pieces


@pytest.mark.parametrize(
    ("source", "status", "repeats"),
    [
        (PieceSource.CALL, None, False),
        (PieceSource.CALL, WORKING, True),
        (PieceSource.RESUME, WORKING, False),
        (PieceSource.READ, WORKING, True),
        (PieceSource.SUBSCRIBE, WORKING, True),
    ],
)
def test_updates_may_repeat_unless_the_piece_begins_where_the_last_one_broke(
    source: PieceSource, status: TaskStatus | None, repeats: bool
) -> None:
    assert open_piece(sending(source=source), known(status=status)).repeats is repeats


@pytest.mark.parametrize(
    ("source", "first", "continues", "doubtful"),
    [
        (PieceSource.RESUME, CHUNK, True, False),
        (PieceSource.RESUME, CHUNK, False, True),
        (PieceSource.RESUME, task(WORKING), True, True),  # something may have come between the two
        (PieceSource.RESUME, task(DONE), False, False),  # nothing follows an end
        (PieceSource.READ, task(WORKING), False, False),
        (PieceSource.SUBSCRIBE, task(WORKING), False, True),
        (PieceSource.CALL, CHUNK, False, True),
    ],
)
def test_only_a_number_or_a_whole_task_proves_that_nothing_is_missing(
    source: PieceSource, first: Update, continues: bool, doubtful: bool
) -> None:
    for before in (False, True):
        state, fits = begin_piece(sending(source=source, doubtful=before), known(), first, continues=continues)
        proved = doubtful or (before and continues and isinstance(first, ArtifactUpdate))
        assert (fits, state.doubtful) == (True, proved)


def test_the_beginning_of_a_send_follows_nothing() -> None:
    state, fits = begin_piece(sending(first=True), Circumstances(), CHUNK, continues=False)
    assert (fits, state.doubtful) == (True, False)


def test_a_subscription_that_begins_in_the_middle_does_not_fit() -> None:
    state, fits = begin_piece(sending(source=PieceSource.SUBSCRIBE), known(), CHUNK, continues=False)
    assert (fits, state.subscribes) == (False, False)


def test_a_resumed_piece_that_begins_with_the_task_may_repeat() -> None:
    assert begin_piece(sending(source=PieceSource.RESUME), known(), task(WORKING), continues=True)[0].repeats
    assert not begin_piece(sending(source=PieceSource.RESUME), known(), CHUNK, continues=True)[0].repeats


@pytest.mark.parametrize(("answers", "first"), [(True, True), (True, False), (False, True)])
def test_the_question_that_a_message_answers_is_in_its_first_snapshot(answers: bool, first: bool) -> None:
    state, _ = begin_piece(sending(answers=answers, first=first), Circumstances(), task(ASKS), continues=False)
    assert state.question == (ASKS if answers and first else None)


@pytest.mark.parametrize(
    ("doubtful", "status", "came", "verdict"),
    [
        (False, WORKING, CHUNK, UpdateVerdict.TAKE),
        (True, DONE, CHUNK, UpdateVerdict.TAKE),
        (False, WORKING, update(DONE), UpdateVerdict.TAKE),
        (True, WORKING, update(DONE), UpdateVerdict.HOLD),
        (True, WORKING, update(ASKS), UpdateVerdict.HOLD),
        (True, WORKING, task(DONE), UpdateVerdict.HOLD),
        (True, WORKING, update(WORKING), UpdateVerdict.TAKE),
        (False, DONE, update(FAILED), UpdateVerdict.IGNORE),
        (False, DONE, task(WORKING), UpdateVerdict.IGNORE),
        (False, DONE, update(DONE), UpdateVerdict.TAKE),
    ],
)
def test_an_update_is_taken_ignored_or_held(
    doubtful: bool, status: TaskStatus, came: Update, verdict: UpdateVerdict
) -> None:
    assert judge(sending(doubtful=doubtful), status, came) is verdict


def test_a_question_does_not_hold_up_a_subscription() -> None:
    assert judge(subscribing(doubtful=True), WORKING, update(ASKS)) is UpdateVerdict.TAKE


# The comparison


@pytest.mark.parametrize(
    ("ended", "read", "waited_s", "expected"),
    [
        (DONE, task(DONE), 0.0, Agree(task(DONE))),
        (DONE, task(FAILED), 0.0, Agree(task(FAILED))),
        (ASKS, task(ASKS), 0.0, Agree(task(ASKS))),
        (DONE, task(WORKING), SETTLES_S - 0.1, ReadAgain()),
        (DONE, task(WORKING), SETTLES_S, Agree(None)),
        (DONE, BROKEN, 9.9, ReadAgain()),
        (DONE, InternalError("fault"), 9.9, ReadAgain()),
        (DONE, TaskNotFound("t"), 0.0, Agree(None)),
        (DONE, HttpRefusal(URL, 404), 0.0, Agree(None)),
    ],
)
def test_the_agents_own_task_is_awaited_for_a_while(
    ended: TaskStatus, read: Task | Failure, waited_s: float, expected: object
) -> None:
    assert judge_final(sending(), known(), ended, read, waited_s) == expected


def test_an_end_that_cannot_be_confirmed_in_time_is_an_error() -> None:
    action = judge_final(sending(), known(event_id="7"), DONE, BROKEN, 10.0)
    assert isinstance(action, Fail)
    assert isinstance(action.error, StreamLost)
    assert (action.error.task_id, action.error.event_id) == ("t", "7")
