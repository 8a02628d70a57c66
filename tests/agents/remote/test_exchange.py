"""The state machine of the exchange with an upstream: each phase with each event, and each failure of a call."""

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from dragoman.agents.remote.exchange import (
    LOOK_AGAIN_S,
    MOVES_MAX,
    READ_AGAIN_S,
    TRANSITIONS,
    AskCaller,
    AskForCredentials,
    AwaitUpstream,
    CallerReplied,
    CallError,
    CallFailed,
    CancelOnceNamed,
    CancelUpstreamTask,
    CardRefreshed,
    ChatFailed,
    ChooseMember,
    CredentialsShown,
    EndRun,
    ExchangeCommand,
    ExchangeEvent,
    ExchangeFacts,
    FailRun,
    FollowTask,
    MemberChosen,
    NoA2a,
    NoMemberLeft,
    NoteLinkLost,
    NoteTaken,
    NoteTask,
    PauseReading,
    ReadTask,
    RefreshCard,
    RunBegan,
    RunCanceled,
    RunResumed,
    SendMessageNow,
    SendOverChat,
    TaskRead,
    UpstreamExchange,
    UpstreamPhase,
    UpstreamSettled,
    WaitEnded,
    advance,
)
from dragoman.agents.remote.failures import CallWithheld
from dragoman.client.errors import (
    CallBroken,
    CallTimedOut,
    ExchangeRefused,
    ExchangeUnusable,
    HttpRefusal,
    NoAnswer,
    NoToken,
    NotReached,
    PeerError,
    StreamLost,
    note_earlier_send,
)
from dragoman.engine.api import Ended
from dragoman.model.errors import (
    AgentFailed,
    AgentNotFound,
    AgentOffline,
    Forbidden,
    InternalError,
    InvalidAgentResponse,
    InvalidParams,
    MethodNotFound,
    NotFound,
    TaskNotFound,
    TaskTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from dragoman.model.task import TaskState, TaskStatus

P = UpstreamPhase
URL = "http://upstream"
MEND_S, NOW_S = 30.0, 100.0
WORKING, ASKS, NEEDS_KEY, DONE, FAILED = (
    TaskStatus(state=state, timestamp="")
    for state in (
        TaskState.WORKING,
        TaskState.INPUT_REQUIRED,
        TaskState.AUTH_REQUIRED,
        TaskState.COMPLETED,
        TaskState.FAILED,
    )
)

SILENT = CallTimedOut(URL, "slow", "answer_s", sent=True)
UNSENT = NotReached(URL, "nobody")
LOST = StreamLost(URL, "gone", "t", "7")
GONE = HttpRefusal(URL, 404)
CHATLESS = Ended(TaskState.REJECTED, (), "no chat")


def exchange(phase: UpstreamPhase, **more: Any) -> UpstreamExchange:
    given = {"queues": False, "for_callers": False, "over_http": True, "mend_s": MEND_S}
    return UpstreamExchange(name="Up", phase=phase, **{**given, **more})


def facts(**more: Any) -> ExchangeFacts:
    return ExchangeFacts(**{"named": False, "first": True, "fresh": True, "retry_s": 5.0, "now_s": NOW_S, **more})


NAMED = facts(named=True, first=False)


def reasons(commands: tuple[ExchangeCommand, ...]) -> list[str]:
    return [command.ended.reason for command in commands if isinstance(command, FailRun)]


def untaken(error: CallError) -> CallError:
    assert not isinstance(error, NoAnswer)
    error.untaken = True
    return error


# Each phase with each event

EXAMPLES: tuple[ExchangeEvent, ...] = (
    RunBegan(),
    RunResumed(repeatable=True),
    NoA2a(),
    CallFailed(SILENT),
    TaskRead(WORKING, has_message=False),
    UpstreamSettled(DONE),
    ChatFailed(CHATLESS),
    CardRefreshed(moved=True),
    MemberChosen(for_callers=False, over_http=True, mend_s=MEND_S),
    NoMemberLeft(),
    CallerReplied(),
    CredentialsShown(),
    WaitEnded(),
    RunCanceled(),
)

POSSIBLE: dict[UpstreamPhase, set[type]] = {
    P.START: {RunBegan, RunResumed},
    P.SENDING: {NoA2a, CallFailed, UpstreamSettled},
    P.WAITING: {WaitEnded},
    P.IDENTIFYING: {CredentialsShown},
    P.MOVING: {CardRefreshed},
    P.CHOOSING: {MemberChosen, NoMemberLeft},
    P.CHATTING: {UpstreamSettled, ChatFailed},
    P.CHATTING_INSTEAD: {UpstreamSettled, ChatFailed},
    P.READING: {NoA2a, CallFailed, TaskRead},
    P.PAUSED: {WaitEnded},
    P.FOLLOWING: {CallFailed, UpstreamSettled},
    P.ASKING: {CallerReplied},
    P.DONE: set(),
}
"""The events that a phase takes, beside a cancel."""


def test_the_examples_are_all_the_events() -> None:
    assert {type(event) for event in EXAMPLES} == set(get_args(ExchangeEvent))
    assert set(POSSIBLE) == set(P)


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("phase", P, ids=lambda phase: phase.name)
def test_a_phase_takes_the_events_that_its_command_leads_to_and_a_cancel(
    phase: UpstreamPhase, event: ExchangeEvent
) -> None:
    before = exchange(phase, error=GONE)
    if type(event) not in POSSIBLE[phase] | {RunCanceled}:
        with pytest.raises(RuntimeError, match=f"{type(event).__name__} cannot follow in phase {phase.name}"):
            advance(before, facts(), event)
        return
    after, commands = advance(before, facts(), event)
    assert (phase, type(event)) in TRANSITIONS
    leads = {
        SendMessageNow: P.SENDING,
        SendOverChat: P.CHATTING,
        ReadTask: P.READING,
        FollowTask: P.FOLLOWING,
        PauseReading: P.PAUSED,
        RefreshCard: P.MOVING,
        EndRun: P.DONE,
        FailRun: P.DONE,
        CancelOnceNamed: P.DONE,
    }
    assert after.phase is (leads[type(commands[-1])] if commands else P.DONE)


LEADS: dict[type, set[type]] = {
    SendMessageNow: POSSIBLE[P.SENDING],
    SendOverChat: POSSIBLE[P.CHATTING],
    ReadTask: POSSIBLE[P.READING],
    FollowTask: POSSIBLE[P.FOLLOWING],
    AskCaller: POSSIBLE[P.ASKING],
    AskForCredentials: POSSIBLE[P.IDENTIFYING],
    AwaitUpstream: POSSIBLE[P.WAITING],
    PauseReading: POSSIBLE[P.PAUSED],
    RefreshCard: POSSIBLE[P.MOVING],
    ChooseMember: POSSIBLE[P.CHOOSING],
}


def test_each_command_says_to_which_events_it_leads() -> None:
    for command, events in LEADS.items():
        assert {event.__name__ for event in events} == {
            name.strip(" .") for name in str(command.__doc__).rsplit(". ", 1)[1].split(",")
        }
    ends = {EndRun, FailRun, CancelUpstreamTask, CancelOnceNamed}
    assert set(LEADS) | ends | {NoteTask, NoteTaken, NoteLinkLost} == set(get_args(ExchangeCommand))


# The way without failures


@pytest.mark.parametrize(
    ("phase", "known", "event", "then", "commands"),
    [
        (P.START, facts(), RunBegan(), P.SENDING, (SendMessageNow(),)),
        (P.START, facts(fresh=False), RunResumed(repeatable=True), P.SENDING, (SendMessageNow(),)),
        (P.START, NAMED, RunResumed(repeatable=False), P.READING, (ReadTask(),)),
        (P.SENDING, facts(), NoA2a(), P.CHATTING, (SendOverChat(),)),
        *(
            (phase, facts(), UpstreamSettled(status), then, (command,))
            for phase in (P.SENDING, P.CHATTING, P.CHATTING_INSTEAD, P.FOLLOWING)
            for status, then, command in (
                (None, P.DONE, EndRun(None)),
                (DONE, P.DONE, EndRun(DONE)),
                (FAILED, P.DONE, EndRun(FAILED)),
                (ASKS, P.ASKING, AskCaller(ASKS)),
                (NEEDS_KEY, P.ASKING, AskCaller(NEEDS_KEY)),
            )
        ),
        (P.ASKING, NAMED, CallerReplied(), P.SENDING, (SendMessageNow(),)),
        (P.WAITING, facts(), WaitEnded(), P.SENDING, (SendMessageNow(),)),
        (P.PAUSED, NAMED, WaitEnded(), P.READING, (ReadTask(),)),
        (P.IDENTIFYING, facts(), CredentialsShown(), P.SENDING, (SendMessageNow(),)),
        (P.MOVING, facts(), CardRefreshed(moved=True), P.SENDING, (SendMessageNow(),)),
        (P.READING, NAMED, TaskRead(WORKING, has_message=False), P.FOLLOWING, (FollowTask(subscribe=True),)),
        (P.READING, NAMED, TaskRead(DONE, has_message=False), P.FOLLOWING, (FollowTask(subscribe=False),)),
        (P.READING, NAMED, TaskRead(ASKS, has_message=False), P.FOLLOWING, (FollowTask(subscribe=False),)),
    ],
)
def test_an_event_leads_on(
    phase: UpstreamPhase,
    known: ExchangeFacts,
    event: ExchangeEvent,
    then: UpstreamPhase,
    commands: tuple[ExchangeCommand, ...],
) -> None:
    after, done = advance(exchange(phase), known, event)
    assert (after.phase, done) == (then, commands)


@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize("kind", [NotFound, MethodNotFound, AgentNotFound])
def test_a_message_whose_repeat_finds_nobody_goes_nowhere_else(
    kind: type[NotFound | MethodNotFound | AgentNotFound], queues: bool
) -> None:
    error = kind("a")
    after, _ = advance(exchange(P.SENDING, queues=queues), facts(recognises=True), CallFailed(error))
    assert after.phase is P.MOVING
    note_earlier_send(error)
    _, commands = advance(exchange(P.SENDING, queues=queues), facts(recognises=True), CallFailed(error))
    assert reasons(commands) == ["upstream_uncertain"]


def test_a_message_that_may_have_arrived_is_not_repeated_by_a_later_run() -> None:
    after, commands = advance(exchange(P.START), facts(fresh=False), RunResumed(repeatable=False))
    assert (after.phase, reasons(commands)) == (P.DONE, ["upstream_uncertain"])


@pytest.mark.parametrize(
    ("status", "has_message", "commands"),
    [
        (ASKS, False, (SendMessageNow(),)),
        (ASKS, True, (NoteTaken(), FollowTask(subscribe=False))),
        (WORKING, False, (NoteTaken(), FollowTask(subscribe=True))),
        (WORKING, True, (NoteTaken(), FollowTask(subscribe=True))),
        (DONE, False, (NoteTaken(), FollowTask(subscribe=False))),
    ],
)
def test_a_recorded_answer_is_sent_only_to_a_task_that_asks_and_lacks_it(
    status: TaskStatus, has_message: bool, commands: tuple[ExchangeCommand, ...]
) -> None:
    state, _ = advance(exchange(P.START), NAMED, RunResumed(repeatable=False, unsent=True))
    after, done = advance(state, NAMED, TaskRead(status, has_message))
    assert done == commands
    assert not after.unsent
    _, done = advance(replace(after, phase=P.READING), NAMED, TaskRead(ASKS, has_message=False))
    assert done == (FollowTask(subscribe=False),), "it is sent once"


@pytest.mark.parametrize("moves", range(MOVES_MAX + 1))
def test_a_message_follows_an_agent_that_moves_for_a_while(moves: int) -> None:
    after, commands = advance(exchange(P.SENDING, moves=moves, over_http=False), facts(), CallFailed(GONE))
    if moves == MOVES_MAX:
        assert reasons(commands) == ["upstream_not_found"]
        return
    assert (after.phase, commands) == (P.MOVING, (RefreshCard(),))
    after, commands = advance(after, facts(), CardRefreshed(moved=True))
    assert (after.moves, commands) == (moves + 1, (SendMessageNow(),))


# The members of a pool

ELSEWHERE = CallWithheld(URL, "held back", Ended(TaskState.FAILED, (), "upstream_unreachable", 7.0))
FULL, GAVE_UP, BROKE = untaken(HttpRefusal(URL, 429)), HttpRefusal(URL, 502), CallBroken(URL, "cut", sent=True)
OTHER, SAME = "takes another member", "sends again"

POOLED: list[tuple[CallError, dict[str, Any], str]] = [
    *((error, {"others": True}, OTHER) for error in (UNSENT, FULL, ELSEWHERE, NoToken(URL, "none"))),
    (UNSENT, {}, "upstream_unreachable"),
    (FULL, {}, "upstream_busy"),
    (ELSEWHERE, {}, "upstream_unreachable"),
    *((error, {"others": True}, "upstream_uncertain") for error in (BROKE, SILENT)),
    *((error, {"others": True, "shared": True}, "upstream_uncertain") for error in (BROKE, SILENT)),
    *((error, {"others": True, "recognises": True}, SAME) for error in (BROKE, SILENT)),
    *(
        (error, {"others": True, "recognises": True, "shared": True}, OTHER)
        for error in (BROKE, SILENT, GAVE_UP, Unavailable("away"))
    ),
    (BROKE, {"recognises": True, "shared": True}, SAME),
    *(
        (error, {"others": True, **known}, "upstream_uncertain")
        for error in (GAVE_UP, Unavailable("away"))
        for known in ({}, {"recognises": True}, {"shared": True})
    ),
    (TaskTimeout("", 5.0), {"others": True}, "upstream_uncertain"),
    (HttpRefusal(URL, 401), {"others": True}, "upstream_refused"),
    (ExchangeRefused(URL, "no"), {"others": True}, "exchange_refused"),
    (InternalError(), {"others": True}, "upstream_failed"),
]


@pytest.mark.parametrize(("error", "known", "then"), POOLED)
def test_a_failed_send_to_a_member(error: CallError, known: dict[str, Any], then: str) -> None:
    before = exchange(P.SENDING, pooled=True, over_http=False, moves=MOVES_MAX)
    after, commands = advance(before, facts(**known), CallFailed(error))
    match then:
        case "takes another member":
            assert (after.phase, commands) == (P.CHOOSING, (ChooseMember(error),))
            member = MemberChosen(for_callers=True, over_http=True, mend_s=9.0)
            after, commands = advance(after, facts(), member)
            assert (after.phase, commands, after.moves) == (P.SENDING, (SendMessageNow(),), 0)
            assert (after.for_callers, after.over_http, after.mend_s) == (True, True, 9.0)
        case "sends again":
            assert (after.phase, commands) == (P.SENDING, (SendMessageNow(),))
            after, commands = advance(after, facts(**known), CallFailed(error))
            assert reasons(commands) == ["upstream_uncertain"], "it is asked again once"
        case _:
            assert (after.phase, reasons(commands)) == (P.DONE, [then])


@pytest.mark.parametrize("known", [{"named": True}, {"first": False}])
def test_a_task_that_a_member_has_goes_to_no_other(known: dict[str, Any]) -> None:
    after, commands = advance(
        exchange(P.SENDING, pooled=True), facts(others=True, shared=True, recognises=True, **known), CallFailed(UNSENT)
    )
    assert (after.phase, reasons(commands)) == (P.DONE, ["upstream_unreachable"])


REFUSALS = [UNSENT, untaken(Unavailable("later")), untaken(TooManyRequests("rate", "later", 3)), NoToken(URL, "none")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("first", ["an earlier send", "an earlier run"])
def test_a_message_that_may_have_been_taken_goes_to_no_other_when_a_repeat_is_refused(
    first: str, refusal: CallError
) -> None:
    known = facts(others=True, recognises=True)
    if first == "an earlier run":
        state, commands = advance(exchange(P.START, pooled=True), known, RunResumed(repeatable=True, unsure=True))
    else:
        state, commands = advance(exchange(P.SENDING, pooled=True), known, CallFailed(BROKE))
    assert commands == (SendMessageNow(),)
    after, commands = advance(state, known, CallFailed(refusal))
    assert (after.phase, reasons(commands)) == (P.DONE, ["upstream_uncertain"])
    everywhere = facts(others=True, recognises=True, shared=True)
    after, commands = advance(state, everywhere, CallFailed(refusal))
    assert (after.phase, commands) == (P.CHOOSING, (ChooseMember(refusal),))
    after, commands = advance(after, everywhere, NoMemberLeft())
    assert reasons(commands) == ["upstream_uncertain"]


def test_without_a_pool_a_refused_repeat_of_a_later_run_leaves_it_unknown() -> None:
    state, _ = advance(exchange(P.START), facts(fresh=False), RunResumed(repeatable=True, unsure=True))
    after, commands = advance(state, facts(fresh=False), CallFailed(Unavailable("later")))
    assert (after.phase, reasons(commands)) == (P.DONE, ["upstream_uncertain"])
    after, commands = advance(state, facts(fresh=False), CallFailed(InvalidParams("message", "no")))
    assert reasons(commands) == ["upstream_rejected"]


@pytest.mark.parametrize("error", [BROKE, SILENT, GAVE_UP, FULL], ids=repr)
def test_a_message_without_an_id_is_recognised_by_nobody(error: CallError) -> None:
    everywhere = facts(others=True, recognises=True, shared=True)
    chat = ChatFailed(Ended(TaskState.FAILED, (), "upstream_busy", 5.0), error)
    after, commands = advance(exchange(P.CHATTING, pooled=True), everywhere, chat)
    if error is FULL:
        assert commands == (ChooseMember(error),)
    else:
        assert (after.phase, reasons(commands)) == (P.DONE, ["upstream_uncertain"])


@pytest.mark.parametrize("pooled", [True, False])
def test_a_message_that_a_proxy_may_have_passed_on_waits_for_its_member_alone(pooled: bool) -> None:
    known = facts(others=pooled, recognises=True)
    before = exchange(P.SENDING, pooled=pooled, queues=True)
    after, commands = advance(before, known, CallFailed(Unavailable("away", 5)))
    assert (after.phase, commands) == (P.WAITING, (AwaitUpstream(5.0),))
    _, commands = advance(after, facts(others=pooled), WaitEnded())
    assert reasons(commands) == ["upstream_uncertain"], "it has waited for longer than repeats are recognised"
    after, commands = advance(after, known, WaitEnded())
    assert (after.phase, commands) == (P.SENDING, (SendMessageNow(),))
    after, commands = advance(after, known, CallFailed(UNSENT))
    assert (after.phase, commands) == (P.WAITING, (AwaitUpstream(0.0),))
    after, commands = advance(after, known, WaitEnded())
    assert commands == (SendMessageNow(),)
    _, commands = advance(after, known, UpstreamSettled(None))
    assert commands == (EndRun(None),)
    _, commands = advance(before, facts(others=pooled), CallFailed(Unavailable("away", 5)))
    assert reasons(commands) == ["upstream_uncertain"]


def test_an_answer_is_in_no_doubt_because_the_message_before_it_was() -> None:
    before, _ = advance(exchange(P.START, queues=True), facts(), RunResumed(repeatable=True, unsure=True))
    asking, _ = advance(before, NAMED, UpstreamSettled(ASKS))
    sending, _ = advance(asking, NAMED, CallerReplied())
    _, commands = advance(replace(sending, queues=False), replace(NAMED, due=True), CallFailed(UNSENT))
    assert reasons(commands) == ["upstream_unreachable"]


@pytest.mark.parametrize("phase", [P.CHATTING, P.CHATTING_INSTEAD])
def test_a_proxy_before_chat_completions_leaves_it_unknown(phase: UpstreamPhase) -> None:
    told = ChatFailed(Ended(TaskState.FAILED, (), "upstream_busy", 5.0), HttpRefusal(URL, 503))
    after, commands = advance(exchange(phase, error=GONE), facts(), told)
    assert (after.phase, reasons(commands)) == (P.DONE, ["upstream_uncertain"])


def test_a_message_that_waits_goes_to_whichever_member_is_back() -> None:
    before = exchange(P.SENDING, pooled=True, queues=True)
    after, commands = advance(before, facts(), CallFailed(UNSENT))
    assert (after.phase, commands) == (P.WAITING, (AwaitUpstream(0.0),))
    after, commands = advance(after, facts(), WaitEnded())
    assert (after.phase, commands) == (P.CHOOSING, (ChooseMember(None),))
    after, commands = advance(after, facts(), NoMemberLeft())
    assert (after.phase, commands) == (P.WAITING, (AwaitUpstream(0.0),))
    after, commands = advance(replace(after, phase=P.WAITING), NAMED, WaitEnded())
    assert commands == (SendMessageNow(),)


def test_chat_completions_that_were_not_taken_go_to_another_member() -> None:
    after, commands = advance(exchange(P.CHATTING, pooled=True), facts(others=True), ChatFailed(CHATLESS, UNSENT))
    assert (after.phase, commands) == (P.CHOOSING, (ChooseMember(UNSENT),))
    after, commands = advance(exchange(P.CHATTING, pooled=True), facts(others=True), ChatFailed(CHATLESS, SILENT))
    assert after.phase is P.DONE


# A cancel


@pytest.mark.parametrize("phase", P)
def test_a_cancel_reaches_the_upstreams_task_in_every_phase(phase: UpstreamPhase) -> None:
    after, commands = advance(exchange(phase), NAMED, RunCanceled())
    assert (after.phase, commands) == (P.DONE, (CancelUpstreamTask(),))
    after, commands = advance(exchange(phase), facts(), RunCanceled())
    assert (after.phase, commands) == (P.DONE, (CancelOnceNamed(),) if phase is P.SENDING else ())


# A failed send

READ, AGAIN, MOVE, CHAT = "reads the task", "waits", "reads the card", "chats"

SENDS: list[tuple[CallError, dict[str, Any], dict[str, Any], str]] = [
    # the stream was lost, or took too long: the task is there
    (LOST, {}, {"named": True, "first": False}, READ),
    (LOST, {"queues": True}, {"named": True, "first": False}, READ),
    (LOST, {}, {}, "upstream_timeout"),
    (TaskTimeout("t", 1.0), {}, {}, READ),
    (TaskTimeout("", 1.0), {}, {}, "upstream_uncertain"),
    # credentials
    (Unauthorized("who?"), {"for_callers": True}, {}, "asks who it is"),
    (Forbidden("no"), {"for_callers": True}, {"named": True}, "asks who it is"),
    (Unauthorized("who?"), {}, {"chats": True}, "upstream_refused"),
    (HttpRefusal(URL, 401), {"for_callers": True}, {"chats": True}, "upstream_refused"),
    (ExchangeRefused(URL, "no"), {"for_callers": True, "queues": True}, {"chats": True}, "asks who it is"),
    (ExchangeUnusable(URL, "no"), {"for_callers": True, "queues": True}, {"chats": True}, "upstream_refused"),
    # nothing was done, and the agent queues
    (UNSENT, {"queues": True}, {}, AGAIN),
    (NoToken(URL, "none"), {"queues": True}, {}, AGAIN),
    (untaken(Unavailable("later")), {"queues": True}, {}, AGAIN),
    (AgentOffline("later"), {"queues": True}, {}, AGAIN),
    (TooManyRequests("rate", "later", 3), {"queues": True}, {}, AGAIN),
    (UNSENT, {}, {}, "upstream_unreachable"),
    (NoToken(URL, "none"), {}, {}, "upstream_refused"),
    (untaken(Unavailable("later")), {}, {}, "upstream_busy"),
    (untaken(HttpRefusal(URL, 503)), {}, {}, "upstream_busy"),
    (TooManyRequests("rate", "later", 3), {}, {"chats": True}, "upstream_busy"),
    # it may have been done
    (SILENT, {"queues": True}, {}, "upstream_timeout"),
    (CallBroken(URL, "broke", sent=True), {"queues": True}, {}, "upstream_uncertain"),
    (HttpRefusal(URL, 500), {"queues": True}, {}, "upstream_unreadable"),
    # a proxy may have passed it on
    *(
        (error, state, known, "upstream_uncertain")
        for error in (Unavailable("later"), *(HttpRefusal(URL, status) for status in (502, 503, 504)))
        for state, known in (
            ({}, {}),
            ({}, {"recognises": True}),
            ({}, {"chats": True}),
            ({"queues": True}, {}),
            ({"queues": True}, {"named": True, "first": False, "due": True}),
        )
    ),
    (Unavailable("later"), {"queues": True}, {"recognises": True}, AGAIN),
    (HttpRefusal(URL, 502), {"queues": True}, {"recognises": True}, AGAIN),
    (Unavailable("later"), {"queues": True}, {"named": True, "first": False, "due": True, "recognises": True}, AGAIN),
    (Unavailable("later"), {}, {"named": True, "first": False}, "upstream_busy"),
    # nobody is there, or nobody who speaks A2A
    (GONE, {}, {}, MOVE),
    (HttpRefusal(URL, 400), {}, {}, MOVE),
    (HttpRefusal(URL, 501), {}, {}, MOVE),
    (HttpRefusal(URL, 500), {}, {"chats": True}, MOVE),
    (HttpRefusal(URL, 401), {}, {"chats": True}, "upstream_refused"),
    (MethodNotFound("no"), {}, {}, MOVE),
    (AgentNotFound("no"), {}, {"named": True}, MOVE),
    (GONE, {"moves": MOVES_MAX}, {}, CHAT),
    (GONE, {"moves": MOVES_MAX, "over_http": False}, {}, "upstream_not_found"),
    (GONE, {"moves": MOVES_MAX}, {"named": True}, "upstream_not_found"),
    (GONE, {"moves": MOVES_MAX}, {"first": False}, "upstream_not_found"),
    (HttpRefusal(URL, 429), {}, {}, "upstream_busy"),
    # chat completions
    (AgentFailed("t", "bad"), {}, {"chats": True}, CHAT),
    (AgentFailed("t", "bad"), {}, {"chats": False}, ""),
    (AgentFailed("t", "bad"), {"over_http": False}, {"chats": True}, ""),
    (AgentFailed("t", "bad"), {}, {"chats": True, "first": False}, ""),
    (InvalidAgentResponse("what"), {}, {"chats": True}, "upstream_unreadable"),
    # the rest
    (TaskNotFound("t"), {"moves": MOVES_MAX}, {"named": True, "first": False}, "upstream_lost_task"),
    (PeerError(URL, "no"), {}, {}, "upstream_unreadable"),
    (InternalError("broken"), {}, {}, "upstream_failed"),
]


@pytest.mark.parametrize(("error", "state", "known", "outcome"), SENDS)
def test_a_failed_send(error: CallError, state: dict[str, Any], known: dict[str, Any], outcome: str) -> None:
    after, commands = advance(exchange(P.SENDING, **state), facts(**known), CallFailed(error))
    match commands[-1]:
        case ReadTask():
            assert (outcome, after.phase) == (READ, P.READING)
            assert commands[:-1] == ((NoteTask("t"), NoteTaken()) if isinstance(error, TaskTimeout) else ())
            assert after.lost_at_s == (NOW_S - MEND_S if error is LOST else None), "it has been silent for so long"
        case AskForCredentials():
            assert (outcome, after.phase, after.identified) == ("asks who it is", P.IDENTIFYING, P.SENDING)
        case AwaitUpstream(asked_s=asked_s):
            assert (outcome, after.phase) == (AGAIN, P.WAITING)
            assert asked_s == (getattr(error, "retry_after_s", None) or 0.0)
        case RefreshCard():
            assert (outcome, after.phase) == (MOVE, P.MOVING)
        case SendOverChat():
            assert (outcome, after.phase) == (CHAT, P.CHATTING_INSTEAD)
        case FailRun(ended=ended):
            assert (outcome, after.phase) == (ended.reason, P.DONE)
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    ("known", "retry_s"),
    [
        (facts(), 5.0),
        (facts(fresh=False), None),
        (facts(first=False), None),
        (facts(named=True), None),
    ],
)
def test_only_a_send_of_which_nothing_was_done_may_be_repeated_by_the_caller(
    known: ExchangeFacts, retry_s: float | None
) -> None:
    _, commands = advance(exchange(P.SENDING), known, CallFailed(UNSENT))
    assert [command.ended.retry_after_s for command in commands if isinstance(command, FailRun)] == [retry_s]


def test_where_chat_completions_fail_too_the_task_ends_with_the_first_failure() -> None:
    state, commands = advance(exchange(P.SENDING, moves=MOVES_MAX), facts(), CallFailed(GONE))
    assert commands == (SendOverChat(),)
    after, commands = advance(state, facts(), ChatFailed(CHATLESS))
    assert (after.phase, reasons(commands), after.error) == (P.DONE, ["upstream_not_found"], None)
    _, commands = advance(exchange(P.CHATTING), facts(), ChatFailed(CHATLESS))
    assert commands == (FailRun(CHATLESS),)


def test_a_card_that_has_not_moved_leaves_chat_completions() -> None:
    state, _ = advance(exchange(P.SENDING), facts(), CallFailed(GONE))
    after, commands = advance(state, facts(), CardRefreshed(moved=False))
    assert (after.phase, commands) == (P.CHATTING_INSTEAD, (SendOverChat(),))
    _, commands = advance(replace(state, over_http=False), facts(), CardRefreshed(moved=False))
    assert reasons(commands) == ["upstream_not_found"]


# A failed read, or subscription

PAUSES = "pauses"

READS: list[tuple[CallError, dict[str, Any], str]] = [
    (UNSENT, {}, PAUSES),
    (SILENT, {}, PAUSES),
    (NoToken(URL, "none"), {}, PAUSES),
    (GONE, {}, PAUSES),
    (Unavailable("later"), {}, PAUSES),
    (InternalError("broken"), {}, PAUSES),
    (LOST, {}, "upstream_uncertain"),
    (LOST, {"queues": True}, PAUSES),
    (UNSENT, {"lost_at_s": NOW_S - MEND_S + 1}, PAUSES),
    (UNSENT, {"lost_at_s": NOW_S - MEND_S}, "upstream_uncertain"),
    (UNSENT, {"lost_at_s": NOW_S - MEND_S, "queues": True}, PAUSES),
    (GONE, {"lost_at_s": NOW_S - MEND_S}, "upstream_not_found"),
    (Unavailable("later"), {"lost_at_s": NOW_S - MEND_S}, "upstream_busy"),
    (InternalError("broken"), {"lost_at_s": NOW_S - MEND_S, "queues": True}, "upstream_failed"),
    (TaskNotFound("t"), {"queues": True}, "upstream_lost_task"),
    (Unauthorized("who?"), {"queues": True}, "upstream_refused"),
    (Unauthorized("who?"), {"for_callers": True}, "asks who it is"),
    (Forbidden("no"), {"for_callers": True}, "asks who it is"),
    (ExchangeRefused(URL, "no"), {"for_callers": True, "queues": True}, "asks who it is"),
    (ExchangeUnusable(URL, "no"), {"for_callers": True, "queues": True}, "upstream_refused"),
    (InvalidAgentResponse("what"), {"queues": True}, "upstream_unreadable"),
]


@pytest.mark.parametrize("phase", [P.READING, P.FOLLOWING])
@pytest.mark.parametrize(("error", "state", "outcome"), READS)
def test_a_failed_read(error: CallError, state: dict[str, Any], outcome: str, phase: UpstreamPhase) -> None:
    after, commands = advance(exchange(phase, **state), NAMED, CallFailed(error))
    assert (commands[0] == NoteLinkLost()) is isinstance(error, NoAnswer)
    match commands[-1]:
        case PauseReading(pause_s=pause_s):
            assert (outcome, after.phase, pause_s) == (PAUSES, P.PAUSED, READ_AGAIN_S)
            assert after.lost_at_s is not None
        case AskForCredentials():
            assert (outcome, after.phase) == ("asks who it is", P.IDENTIFYING)
            assert advance(after, NAMED, CredentialsShown())[1] == (ReadTask(),)
        case FailRun(ended=ended):
            assert (outcome, after.phase, ended.retry_after_s) == (ended.reason, P.DONE, None)
        case other:
            raise AssertionError(other)


def test_the_pauses_between_reads_grow_to_a_bound_and_begin_anew_after_an_answer() -> None:
    state, pauses = exchange(P.READING, queues=True), list[float]()
    for _ in range(8):
        state, commands = advance(state, NAMED, CallFailed(SILENT))
        pauses += [command.pause_s for command in commands if isinstance(command, PauseReading)]
        state, _ = advance(state, NAMED, WaitEnded())
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, LOOK_AGAIN_S, LOOK_AGAIN_S, LOOK_AGAIN_S]
    state, _ = advance(state, NAMED, TaskRead(WORKING, has_message=False))
    _, commands = advance(state, NAMED, CallFailed(SILENT))
    assert commands[-1] == PauseReading(READ_AGAIN_S)


def test_a_pause_lasts_as_long_as_the_breaker_within_the_bound() -> None:
    for breaker_s, pause_s in ((0.0, READ_AGAIN_S), (2.0, 2.0), (60.0, LOOK_AGAIN_S)):
        _, commands = advance(exchange(P.READING), replace(NAMED, breaker_s=breaker_s), CallFailed(SILENT))
        assert commands[-1] == PauseReading(pause_s)


def test_a_task_that_is_read_at_last_has_its_whole_time_again() -> None:
    state, _ = advance(exchange(P.READING), NAMED, CallFailed(SILENT))
    state, _ = advance(state, NAMED, WaitEnded())
    state, _ = advance(state, NAMED, TaskRead(WORKING, has_message=False))
    after, commands = advance(state, replace(NAMED, now_s=NOW_S + MEND_S), CallFailed(SILENT))
    assert (after.phase, after.lost_at_s) == (P.PAUSED, NOW_S + MEND_S)
    _, commands = advance(after, replace(NAMED, now_s=NOW_S + MEND_S), WaitEnded())
    assert commands == (ReadTask(),)
