"""Checks of what an agent does with messages: answers, streams, lists, cancels, and keeps tasks from other callers.

Invariant: an attempt that was not made is grey, and so is one whose outcome says nothing about its rule.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from dragoman.doctor.finding import Check, Color, Verdict, pass_or_fail
from dragoman.doctor.observation import Attempt, AttemptOutcome, Observations

SLOW_FIRST_MS = 5_000.0
"""People notice a wait that is longer, even if they see that something is being done."""

_DENIED = ("Unauthorized", "Forbidden")
_INTERRUPTED = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")

Judge = Callable[[Observations, AttemptOutcome], tuple[Color, str] | None]


def _of(attempt: Attempt, judge: Judge, *, only_1: bool = False) -> Callable[[Observations], Iterator[Verdict]]:
    """Judge the outcome of an attempt; with `only_1` only of one in version 1.0."""

    def verdicts(seen: Observations) -> Iterator[Verdict]:
        came = seen.attempts.get(attempt)
        if came is None or seen.tried_at is None or (only_1 and seen.tried_at.interface.dialect != "1.0"):
            return
        if came.failure.startswith("no answer within"):
            yield Verdict(Color.GREY, f"not measured: {came.failure}", seen.tried_at.name)
        elif (judged := judge(seen, came)) is not None:
            yield Verdict(*judged, seen.tried_at.name)

    return verdicts


def _answered(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    if seen.tried_at is None:
        yield Verdict(Color.GREY, "not measured: give --active to send messages, which may cost money")
        return
    came = seen.attempts.get(Attempt.SEND)
    if came is None:
        why = "not measured: it may not be dialled" if seen.tried_at.refused else "not measured in time"
        yield Verdict(Color.GREY, why, seen.tried_at.name)
    elif came.failure.startswith("no answer within") or came.error in _DENIED:
        yield Verdict(Color.GREY, f"not measured: {came.words}", seen.tried_at.name)
    else:
        color = Color.RED if came.failure or came.error else Color.GREEN
        yield Verdict(color, f"a message is answered with {came.words} in {came.elapsed_ms:.0f} ms", seen.tried_at.name)


def _waits(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.error or came.failure or came.kind != "Task":
        return None
    done = came.ended or came.state in _INTERRUPTED
    return pass_or_fail(done, f"a message is answered when its task is in {came.state}")


def _context(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.error or came.failure:
        return None
    if came.kind == "Message" and seen.tried_at is not None and seen.tried_at.interface.dialect != "1.0":
        return None  # in 0.3 a task has a contextId, and a message may have one (A2A 0.3 §6.1, §6.4)
    given = bool(came.context_id)
    return pass_or_fail(given, f"the answer has {'a' if given else 'no'} contextId")


def _read(seen: Observations, came: AttemptOutcome) -> tuple[Color, str]:
    right = came.task_id == seen.task_id
    return pass_or_fail(right, f"a task that was just made is read as {came.words}")


def _lists(seen: Observations, came: AttemptOutcome) -> tuple[Color, str]:
    color = Color.YELLOW if came.error or came.failure else Color.GREEN
    return color, f"ListTasks is answered with {came.words}"


def _listed(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.error or came.failure:
        return None
    right = seen.task_id in came.listed
    return pass_or_fail(right, f"the task is {'' if right else 'not '}among the tasks of its context")


def _repeated(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    first = seen.attempts.get(Attempt.SEND, AttemptOutcome())
    if not first.task_id or not came.task_id:
        return None
    if came.task_id == first.task_id:
        return Color.GREEN, "a message that is sent again is taken once"
    if seen.dedupes:
        return Color.RED, "a message that is sent again makes another task, but the card says that it does not"
    return Color.GREY, "a message that is sent again makes another task, which A2A allows"


def _with_error(error: str, did: str) -> Judge:
    """Judge whether the attempt failed with that error. `did` names what was attempted."""

    def judge(seen: Observations, came: AttemptOutcome) -> tuple[Color, str]:
        return pass_or_fail(came.error == error, f"{did}: {came.words}")

    return judge


def _cancel(seen: Observations, came: AttemptOutcome) -> tuple[Color, str]:
    if came.error == "TaskNotCancelable" or came.state == "TASK_STATE_COMPLETED":
        return Color.GREY, "not measured: the task had ended before"
    if came.state == "TASK_STATE_CANCELED":
        return Color.GREEN, "a running task was canceled"
    if came.error or came.failure:
        return Color.YELLOW, f"the cancelation of a running task: {came.words}"
    return Color.GREY, f"not clear: the task is in {came.state} after its cancelation"


def _streamed(seen: Observations, came: AttemptOutcome) -> tuple[Color, str]:
    if came.error or came.failure:
        return Color.RED, f"the card says that the agent streams, and a stream is answered with {came.words}"
    if came.events[:1] not in (("Task",), ("Message",)) and seen.tried_at and seen.tried_at.interface.dialect == "1.0":
        return Color.RED, f"a stream begins with {came.events[0] if came.events else 'nothing'}"
    whole = came.kind == "Message" or came.ended or came.state in _INTERRUPTED
    return pass_or_fail(whole, f"{came.words}, which ends in {came.state or 'a message'}")


def _first_event(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if not came.events:
        return None
    slow = came.first_ms > SLOW_FIRST_MS
    return (Color.YELLOW if slow else Color.GREEN, f"the first update comes after {came.first_ms:.0f} ms")


def _resumed(seen: Observations) -> Iterator[Verdict]:
    whole = seen.attempts.get(Attempt.STREAM)
    if whole is None or seen.tried_at is None or not whole.events:
        return
    came = seen.attempts.get(Attempt.RESUME)
    if came is None:
        yield Verdict(Color.GREY, "updates have no ids, so a stream that breaks cannot be resumed", seen.tried_at.name)
    elif came.event_ids and came.event_ids == whole.event_ids[1:]:
        yield Verdict(Color.GREEN, "a stream is resumed after Last-Event-ID, without a gap", seen.tried_at.name)
    else:
        yield Verdict(Color.YELLOW, f"Last-Event-ID is answered with {came.words}", seen.tried_at.name)


def _foreign(seen: Observations) -> Iterator[Verdict]:
    if seen.tried_at is None or Attempt.SEND not in seen.attempts:
        return
    came = seen.attempts.get(Attempt.FOREIGN)
    if came is None:
        yield Verdict(Color.GREY, "not measured: give --second-key, the key of another caller", seen.tried_at.name)
    elif came.error in ("TaskNotFound", *_DENIED):
        kept = Color.GREEN if came.error == "TaskNotFound" else Color.GREY
        yield Verdict(kept, f"another caller who asks for the task gets {came.error}", seen.tried_at.name)
    elif came.error or came.failure:
        yield Verdict(Color.YELLOW, f"another caller who asks for the task gets {came.words}", seen.tried_at.name)
    else:
        yield Verdict(Color.RED, "another caller can read the task", seen.tried_at.name)


def _webhook(seen: Observations, came: AttemptOutcome) -> tuple[Color, str]:
    if came.error == "PushNotificationNotSupported":
        return Color.GREEN, "the agent calls no webhooks, and says so"
    if came.error or came.failure:
        return Color.GREEN, f"a webhook at its own machine is refused with {came.words}"
    color = Color.RED if seen.public else Color.YELLOW
    return color, "a webhook at its own machine is accepted: callers can reach what only that machine should"


_ROWS = (
    Check(
        name="message-answered",
        section="A2A 1.0 §3.1.1",
        fix="answer a plain text message with a task or a message",
        judge=_answered,
        must=True,
    ),
    Check(
        name="message-blocks",
        section="A2A 1.0 §3.2.2",
        fix="answer when the task has ended or waits for its caller, unless returnImmediately is true",
        judge=_of(Attempt.SEND, _waits, only_1=True),
        must=True,
    ),
    Check(
        name="message-context",
        section="A2A 1.0 §3.4.1, A2A 0.3 §6.1",
        fix="make a contextId for a message that has none, and answer with it",
        judge=_of(Attempt.SEND, _context),
        must=True,
    ),
    Check(
        name="message-repeated",
        section="A2A 1.0 §3.3.1",
        fix="recognise a message by its messageId, as the card promises",
        judge=_of(Attempt.REPEAT, _repeated),
    ),
    Check(
        name="message-to-unknown",
        section="A2A 1.0 §3.4.2",
        fix="answer TaskNotFoundError to a message whose taskId does not exist",
        judge=_of(Attempt.SEND_TO_UNKNOWN, _with_error("TaskNotFound", "a message to a task that does not exist")),
        must=True,
    ),
    Check(
        name="stream",
        section="A2A 1.0 §3.1.2",
        fix="begin a stream with the task or the message, and end it when the task ends or waits",
        judge=_of(Attempt.STREAM, _streamed),
        must=True,
    ),
    Check(
        name="stream-first-update",
        section="measured",
        fix="send the task before the work begins",
        judge=_of(Attempt.STREAM, _first_event),
    ),
    Check(
        name="stream-resumed",
        section="HTML standard §9.2, Last-Event-ID",
        fix="send the updates after the one that the caller names",
        judge=_resumed,
    ),
    Check(
        name="cancel",
        section="A2A 1.0 §3.1.5",
        fix="cancel a task that runs, or say why not with TaskNotCancelableError",
        judge=_of(Attempt.CANCEL, _cancel),
    ),
    Check(
        name="task-read",
        section="A2A 1.0 §3.1.3",
        fix="keep a task for as long as its caller may ask for it",
        judge=_of(Attempt.GET, _read),
        must=True,
    ),
    Check(
        name="list",
        section="A2A 1.0 §3.1.4",
        fix="implement ListTasks, so that callers find their tasks again",
        judge=_of(Attempt.LIST, _lists, only_1=True),
    ),
    Check(
        name="task-listed",
        section="A2A 1.0 §3.1.4",
        fix="list every task of the caller that has the contextId",
        judge=_of(Attempt.LIST, _listed, only_1=True),
        must=True,
    ),
    Check(
        name="task-foreign",
        section="A2A 1.0 §13.1",
        fix="show a task to the caller who made it, and answer TaskNotFoundError to everybody else",
        judge=_foreign,
        must=True,
    ),
    Check(
        name="cancel-ended",
        section="A2A 1.0 §3.1.5",
        fix="answer TaskNotCancelableError",
        judge=_of(Attempt.CANCEL_ENDED, _with_error("TaskNotCancelable", "the cancelation of a task that has ended")),
        must=True,
    ),
    Check(
        name="subscribe-ended",
        section="A2A 1.0 §3.1.6",
        fix="answer UnsupportedOperationError",
        judge=_of(
            Attempt.SUBSCRIBE_ENDED,
            _with_error("UnsupportedOperation", "a subscription to a task that has ended"),
            only_1=True,
        ),
        must=True,
    ),
    Check(
        name="webhook-address",
        section="A2A 1.0 §13.2",
        fix="refuse webhooks at loopback, private and link-local addresses",
        judge=_of(Attempt.WEBHOOK, _webhook),
    ),
)


def _at_each(judge: Callable[[Observations], Iterable[Verdict]]) -> Callable[[Observations], Iterator[Verdict]]:
    """Judge what was attempted at each endpoint."""

    def verdicts(seen: Observations) -> Iterator[Verdict]:
        for each in seen.each_trial:
            yield from judge(each)

    return verdicts


BEHAVIOR_CHECKS = tuple(replace(check, judge=_at_each(check.judge)) for check in _ROWS)
"""The rows, in the order of the report."""
