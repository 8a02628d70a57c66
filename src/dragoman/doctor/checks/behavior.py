"""Checks of what an agent does with messages: answers, streams, lists, cancels, and keeps tasks from other callers.

Invariant: an attempt that was not made is grey, and so is one whose outcome says nothing about its rule.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from dragoman.doctor.answers import answer_faults, frames, stray_line, stream_results
from dragoman.doctor.finding import Check, Color, Verdict, pass_or_fail
from dragoman.doctor.observation import (
    BODY_SHOWN,
    CUT,
    Attempt,
    AttemptOutcome,
    Exchange,
    Observations,
    error_name,
    json_fault,
)
from dragoman.doctor.trial import LAST_S

LIVE_S = 1.0
"""Updates that were made in less time say nothing about whether they are sent at once."""

ORDER_S = 0.02
"""Tasks whose times differ by less may be listed in either order."""

SLOW_FIRST_MS = 5_000.0
"""People notice a wait that is longer, even if they see that something is being done."""

_DENIED = ("Unauthorized", "Forbidden")
_RUNNING = ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
_INTERRUPTED = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")

Judged = tuple[Color, str] | tuple[Color, str, str]
"""A colour, what was observed, and in some cases what to change."""

Judge = Callable[[Observations, AttemptOutcome], Judged | None]


def _of(
    attempt: Attempt, judge: Judge, *, only_1: bool = False, vendors: bool = False
) -> Callable[[Observations], Iterator[Verdict]]:
    """Judge the outcome of an attempt; with `only_1` only of one in version 1.0, with `vendors` also of one in the
    dialect of a vendor, which keeps rules of its own.

    An answer that cannot be read is not judged if the checks of the bytes name its fault.
    """

    def verdicts(seen: Observations) -> Iterator[Verdict]:
        came = seen.attempts.get(attempt)
        if came is None or seen.tried_at is None or (only_1 and seen.tried_at.interface.dialect != "1.0"):
            return
        if not (vendors or seen.tried_at.official):
            return
        if came.late:
            yield Verdict(Color.GREY, f"not measured: {came.failure}", seen.tried_at.name)
        elif came.unreadable and _is_faulty(seen, attempt, came):
            return
        elif (judged := judge(seen, came)) is not None:
            color, told, *fix = judged
            yield Verdict(color, told, seen.tried_at.name, "".join(fix), came.exchange)

    return verdicts


def _is_faulty(seen: Observations, attempt: Attempt, came: AttemptOutcome) -> bool:
    """Whether the checks of the bytes name a fault of an answer."""
    if came.exchange is None or seen.tried_at is None:
        return False
    return any(True for _ in answer_faults(seen.tried_at.interface, attempt, came.exchange))


def _answered(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    if seen.tried_at is None and seen.endpoints and not any(each.speaks for each in seen.endpoints):
        return  # another check says why
    if seen.tried_at is None:
        yield Verdict(Color.GREY, "not measured: give --active to send messages, which may cost money")
        return
    came, where = seen.attempts.get(Attempt.SEND), seen.tried_at.name
    if came is None:
        why = "not measured: it may not be dialled" if seen.tried_at.refused else "not measured in time"
        yield Verdict(Color.GREY, why, where)
    elif came.late:
        yield from _late(seen, came, where)
    elif came.error in _DENIED:
        yield Verdict(Color.GREY, f"not measured: {came.words}", where)
    elif came.unreadable and _is_faulty(seen, Attempt.SEND, came):
        return
    else:
        color = Color.RED if came.failure or came.error else Color.GREEN
        told = f"a message is answered with {came.words} in {came.elapsed_ms:.0f} ms"
        yield Verdict(color, told, where, _answer_fix(came.exchange), came.exchange)


def _answer_fix(came: Exchange | None) -> str:
    """Say what to change where a message is answered with something else."""
    if came is None or not came.status:
        return ""
    if came.status >= 500:
        return "the server breaks on a plain text message: look for the error in its log"
    if came.status >= 300:
        return ""
    if came.is_stream:
        return "answer a message without a stream with one JSON document"
    if came.document is None:
        cut = json_fault(came.body).startswith(CUT)
        return "send the whole answer: a Content-Length must count bytes, not characters" if cut else _JSON_FIX
    if isinstance(came.document, list):
        return "answer with one response, not with a list"
    return "answer with a task or a message in the result" if came.rpc_code is None else ""


_JSON_FIX = "answer with JSON in UTF-8, without NaN and Infinity"


def _late(seen: Observations, came: AttemptOutcome, where: str) -> Iterator[Verdict]:
    """Judge an agent that has not answered in time: it works for long, or it never answers."""
    begun = seen.attempts.get(Attempt.BEGIN)
    if begun is not None and begun.late:
        told = f"{came.failure} to a message, and none to one that asks for an answer at once"
        fix = "answer at least a message with returnImmediately at once, with the task that was made"
        yield Verdict(Color.RED, told, where, fix, came.exchange)
    else:
        yield Verdict(Color.GREY, f"not measured: {came.failure}; the agent works for longer", where)


def _waits(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.error or came.failure or came.kind != "Task":
        return None
    done = came.ended or came.state in _INTERRUPTED
    return pass_or_fail(done, f"a message is answered when its task is in {came.state}")


def _returns(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    """Judge whether a message that is not to be waited for is answered at once, beside a mere read."""
    read = seen.attempts.get(Attempt.GET, came)
    if came.error or came.failure or came.kind != "Task":
        return None
    waits = came.ended and came.elapsed_ms - read.elapsed_ms > LIVE_S * 1000
    told = f"a message with returnImmediately is answered after {came.elapsed_ms:.0f} ms"
    return (Color.YELLOW, f"{told}, when its task has ended") if waits else (Color.GREEN, told)


def _succeeds(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.state not in ("TASK_STATE_FAILED", "TASK_STATE_REJECTED"):
        return None
    words = " ".join(str(part.get("text", "")) for each in _said(came) for part in _objects(each.get("parts")))
    told = f": {' '.join(words.split())[:BODY_SHOWN]}" if words.strip() else ", and says nothing"
    return Color.YELLOW, f"the task of the message ends in {came.state}{told}"


def _role(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    wrong = [role for each in _said(came) if (role := each.get("role")) in ("ROLE_USER", "user")]
    if wrong:
        return Color.RED, f"the agent's own message has the role {wrong[0]}"
    return (Color.GREEN, "the agent's messages have its role") if _said(came) else None


def _said(came: AttemptOutcome) -> list[dict[str, Any]]:
    """Return the agent's messages in an answer: the answer itself, or that of its task's status."""
    match result := _result(came):
        case {"message": dict() as message} | {"task": {"status": {"message": dict() as message}}}:
            return [message]
        case {"status": {"message": dict() as message}}:
            return [message]
        case {"messageId": _}:
            return [result]
    return []


def _result(came: AttemptOutcome) -> dict[str, Any]:
    """Return the result in an answer, without the envelope of JSON-RPC; empty if it is no object."""
    document = None if came.exchange is None else came.exchange.document
    result = document.get("result", document) if isinstance(document, dict) else None
    return result if isinstance(result, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _context(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.error or came.failure:
        return None
    if came.kind == "Message" and seen.tried_at is not None and seen.tried_at.interface.dialect != "1.0":
        return None  # in 0.3 a task has a contextId, and a message may have one (A2A 0.3 §6.1, §6.4)
    others = [each for each in _each_new(seen) if each.exchange is None or _context_sent(each.exchange) is None]
    if came.context_id and any(each.context_id == came.context_id for each in others):
        return Color.RED, f"messages without a contextId are answered with the same one, {came.context_id!r}"
    given = bool(came.context_id)
    return pass_or_fail(given, f"the answer has {'a' if given else 'no'} contextId")


def _each_new(seen: Observations) -> list[AttemptOutcome]:
    """Return the attempts that begin another task than the first message did."""
    return [each for attempt in (Attempt.STREAM, Attempt.BEGIN) if (each := seen.attempts.get(attempt)) is not None]


def _context_sent(came: Exchange) -> str | None:
    """Return the contextId of the message that was sent."""
    match came.asked:
        case {"params": {"message": {"contextId": str(context_id)}}} | {"message": {"contextId": str(context_id)}}:
            return context_id
    return None


def _keeps_context(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    given = None if came.exchange is None else _context_sent(came.exchange)
    if given is None or came.error or came.failure:
        return None
    said = repr(came.context_id) if came.context_id else "none"
    return pass_or_fail(came.context_id == given, f"a message with the contextId {given!r} is answered with {said}")


def _to_ended(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.failure or came.error in _DENIED:
        return None
    new = seen.tried_at is not None and seen.tried_at.interface.dialect == "1.0"  # 0.3 has it in its guide alone
    color = Color.GREEN if came.error else Color.RED if new else Color.YELLOW
    return color, f"a message to a task that has ended is answered with {came.words}"


def _own_task(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    others = [each for each in _each_new(seen) if each.task_id]
    if not came.task_id or not others:
        return None
    same = any(each.task_id == came.task_id for each in others)
    return pass_or_fail(not same, f"two messages are answered with {'the same task' if same else 'tasks of their own'}")


def _read(seen: Observations, came: AttemptOutcome) -> Judged:
    again = seen.attempts.get(Attempt.READ_AGAIN, came)
    if "TaskNotFound" in (came.error, again.error) and (came.task_id or again.task_id) == seen.task_id:
        fix = "let all replicas and workers of the agent share one store of tasks, instead of one in the memory of each"
        return Color.RED, "a task that was just made is found at one call, and not found at another", fix
    first = seen.attempts.get(Attempt.SEND)
    if first is not None and first.ended and came.state and came.state != first.state:
        return Color.RED, f"a task that was answered in {first.state}, which is final, is read in {came.state}"
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


def _history(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.error or came.failure:
        return None
    color = Color.YELLOW if came.history else Color.GREEN
    return color, f"a task that is read with historyLength 0 has {came.history or 'no'} messages of its history"


def _ordered(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    tasks = _objects(_result(came).get("tasks"))
    times = [at for each in tasks if (at := _made_s(each)) is not None]
    if len(times) < 2:
        return None
    right = all(after < before + ORDER_S for before, after in pairwise(times))
    return pass_or_fail(right, f"tasks are listed {'' if right else 'not '}by the time of their status, newest first")


def _pages(seen: Observations, came: AttemptOutcome) -> Judged | None:
    page = _result(came)
    if came.error or came.failure or not came.listed or (page and "nextPageToken" not in page):
        return None  # other checks name these faults
    if len(came.listed) > 1:
        return Color.RED, f"a page with pageSize 1 has {len(came.listed)} tasks", "apply pageSize"
    following = seen.attempts.get(Attempt.NEXT_PAGE)
    if following is None:
        made = {each.task_id for each in seen.attempts.values() if each.kind == "Task" and each.task_id}
        told = "a page of one task has no nextPageToken"
        return (Color.RED, f"{told}, although there are more tasks") if len(made) > 1 else None
    if following.error or following.failure:
        return Color.RED, f"the next page, by the token of the one before, is answered with {following.words}"
    told = "the page after the first is " + ("the first again" if following.listed == came.listed else "another one")
    return pass_or_fail(following.listed != came.listed, told)


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
    after = seen.attempts.get(Attempt.AFTER_CANCEL)
    if came.error == "TaskNotCancelable" or came.state == "TASK_STATE_COMPLETED":
        return Color.GREY, "not measured: the task had ended before"
    if came.error or came.failure:
        return Color.YELLOW, f"the cancelation of a running task: {came.words}"
    if after is not None and after.state in _RUNNING:
        return Color.RED, f"a running task is canceled without an error, and is in {after.state} afterwards"
    if came.state == "TASK_STATE_CANCELED" or (after is not None and after.state == "TASK_STATE_CANCELED"):
        return Color.GREEN, "a running task was canceled"
    return Color.GREY, f"not clear: the task is in {came.state} after its cancelation"


def _left(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.listed:
        return Color.YELLOW, f"the examination began these tasks and could not end them: {', '.join(came.listed)}"
    return None


# -- streams -----------------------------------------------------------------------------------------------------------


def _streamed(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.error or came.failure:
        return Color.RED, f"the card says that the agent streams, and a stream is answered with {came.words}"
    return Color.GREEN, came.words


def _stream_type(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.exchange is None or came.exchange.status != 200 or came.exchange.rpc_code is not None:
        return None
    return pass_or_fail(came.exchange.is_stream, f"a stream is served as {came.exchange.content_type or 'nothing'}")


def _stream_frames(seen: Observations, came: AttemptOutcome) -> Judged | None:
    if came.exchange is None or not came.exchange.is_stream:
        return None
    documents = frames(came.exchange)
    if not documents and came.exchange.body.strip():
        shown = " ".join(came.exchange.text.split())[:BODY_SHOWN]
        return Color.RED, f"the stream has no event with data, it begins with: {shown}"
    bad = [number for number, document in enumerate(documents, 1) if not isinstance(document, dict)]
    if bad and (stray := stray_line(came.exchange)):
        told = f"event {bad[0]} has a line that does not begin with `data:`, {stray[:BODY_SHOWN]!r}: readers ignore it"
        return Color.RED, told, "write the JSON of an event on one line, or `data: ` before each of its lines"
    if bad:
        return Color.RED, f"event {bad[0]} of {len(documents)} is no JSON object"
    return (Color.GREEN, f"{len(documents)} events of JSON") if documents else None


def _stream_begins(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if not came.events:
        if came.error or came.failure or came.exchange is None or frames(came.exchange):
            return None
        return Color.RED, "the stream is empty"
    return pass_or_fail(came.events[0] in ("Task", "Message"), f"a stream begins with a {came.events[0]}")


def _stream_ends(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if not came.events or (came.exchange is not None and _has_bad_frame(came.exchange)):
        return None
    whole = came.kind == "Message" or came.ended or came.state in _INTERRUPTED
    if not whole and _is_faulty(seen, Attempt.STREAM, came):
        return None
    if came.broke and not whole:
        return Color.RED, f"the stream breaks after {len(came.events)} updates: {came.broke}"
    state = came.state or ("a message" if came.kind == "Message" else "no state")
    return pass_or_fail(whole, f"a stream of {len(came.events)} updates ends in {state}")


def _has_bad_frame(came: Exchange) -> bool:
    return any(not isinstance(document, dict) for document in frames(came))


def _stream_closes(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if not came.ended and came.kind != "Message":
        return None
    if came.stays_open:
        return Color.RED, f"the stream is still open {LAST_S:g} s after {came.state or 'its message'}"
    return Color.GREEN, "the stream is closed when the task has ended"


def _stream_after_end(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.after_end:
        end = came.state or "the message"
        return Color.RED, f"{came.after_end} update{'s' if came.after_end > 1 else ''} came after {end}, which is final"
    return (Color.GREEN, "nothing follows the end") if came.ended else None


def _stream_ids(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.exchange is None or seen.tried_at is None or not came.exchange.is_stream:
        return None
    results = stream_results(seen.tried_at.interface, came.exchange)
    tasks = {str(each.get("taskId") or each["id"]) for each in results if each.get("taskId") or each.get("id")}
    if len(tasks) > 1:
        return Color.RED, f"the updates of one stream are of {len(tasks)} tasks: {', '.join(sorted(tasks)[:3])}"
    contexts = {each["contextId"] for each in results if isinstance(each.get("contextId"), str)}
    if len(contexts) > 1:
        return Color.RED, f"the updates of one stream are of {len(contexts)} contexts"
    lacking = [each for each in results if "taskId" in each and not each.get("contextId") and "parts" not in each]
    if lacking and contexts:
        return Color.RED, "updates of the stream have no contextId"
    return (Color.GREEN, "all updates name the same task and context") if tasks else None


def _stream_final(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if seen.tried_at is None or seen.tried_at.interface.dialect != "0.3" or came.exchange is None or not came.ended:
        return None
    results = [each for each in stream_results(seen.tried_at.interface, came.exchange) if "status" in each]
    if not results or results[-1].get("kind") == "task" or "history" in results[-1]:
        return None
    return pass_or_fail(results[-1].get("final") is True, f"the last status has final: {results[-1].get('final')}")


def _stream_chunks(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.exchange is None or seen.tried_at is None or not came.exchange.is_stream:
        return None
    known: set[str] = set()
    chunks = [each for each in stream_results(seen.tried_at.interface, came.exchange) if "artifact" in each]
    for each in chunks:
        artifact = each["artifact"]
        name = artifact.get("artifactId") if isinstance(artifact, dict) else None
        if not isinstance(name, str):
            continue
        if each.get("append") is True and name not in known:
            return Color.RED, f"a chunk is appended to the artifact {name!r}, which has not begun"
        known.add(name)
    return (Color.GREEN, "chunks continue artifacts that have begun") if known else None


def _subscribed(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if came.error in ("UnsupportedOperation", *_DENIED):
        return Color.GREY, f"not measured: a subscription to a task at work is answered with {came.words}"
    if came.error or came.failure:
        return Color.RED, f"a subscription to a task at work is answered with {came.words}"
    first = came.events[0] if came.events else "nothing"
    new = seen.tried_at is not None and seen.tried_at.interface.dialect == "1.0"
    return pass_or_fail(first == "Task" or (bool(came.events) and not new), f"a subscription begins with {first}")


def _first_event(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if not came.events:
        return None
    slow = came.first_ms > SLOW_FIRST_MS
    return (Color.YELLOW if slow else Color.GREEN, f"the first update comes after {came.first_ms:.0f} ms")


def _live(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    """Judge whether updates come when they are made, by the agent's own times of its statuses."""
    if came.exchange is None or seen.tried_at is None or not came.exchange.is_stream or len(came.events) < 2:
        return None
    made = [at for each in stream_results(seen.tried_at.interface, came.exchange) if (at := _made_s(each)) is not None]
    if not made or (made_s := max(made) - min(made)) < LIVE_S:
        return None
    came_s = (came.last_ms - came.first_ms) / 1000
    color = Color.YELLOW if came_s < made_s / 4 else Color.GREEN
    return color, f"updates that were made within {made_s:.1f} s come within {came_s:.1f} s"


def _made_s(update: dict[str, Any]) -> float | None:
    """Return the time of an update's status, in seconds since the epoch; None if it says none."""
    match update:
        case {"status": {"timestamp": str(text)}}:
            try:
                at = datetime.fromisoformat(text)
            except ValueError:
                return None
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return None


def _resumed(seen: Observations) -> Iterator[Verdict]:
    whole = seen.attempts.get(Attempt.STREAM)
    if whole is None or seen.tried_at is None or not whole.events or not seen.tried_at.official:
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
        yield Verdict(kept, f"another caller who asks for the task gets {error_name(came.error)}", seen.tried_at.name)
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


def _called(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    if not seen.pushes or came.error == "PushNotificationNotSupported":
        return None
    if came.error or came.failure:
        return Color.GREY, f"not measured: a webhook of this tool is refused with {came.words}"
    if came.kind != "Task":
        return None
    called = bool(came.listed)
    return pass_or_fail(called, f"a webhook that was accepted is {'' if called else 'not '}called")


def _filtered(seen: Observations, came: AttemptOutcome) -> tuple[Color, str] | None:
    tasks = _result(came).get("tasks")
    known = next(
        (seen.attempts[each].context_id for each in (Attempt.SEND, Attempt.BEGIN) if each in seen.attempts), ""
    )
    if not isinstance(tasks, list) or not known:
        return None
    contexts = [each.get("contextId") for each in tasks if isinstance(each, dict)]
    if strange := [each for each in contexts if isinstance(each, str) and each != known]:
        return Color.RED, f"{len(strange)} of {len(tasks)} listed tasks are of other contexts than the one asked for"
    if any(isinstance(each, dict) and each.get("artifacts") for each in tasks):
        return Color.RED, "listed tasks have artifacts, which were not asked for with includeArtifacts"
    return Color.GREEN, "only tasks of the context are listed, without artifacts"


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
        fix="make a new contextId for each message that has none, and answer with it",
        judge=_of(Attempt.SEND, _context),
        must=True,
    ),
    Check(
        name="message-returns",
        section="A2A 1.0 §3.2.2",
        fix="answer a message with returnImmediately once its task is made, and work on behind it",
        judge=_of(Attempt.BEGIN, _returns, only_1=True),
    ),
    Check(
        name="message-succeeds",
        section="measured",
        fix="see the agent's log: a model without its key, for example. Or say with --text what the agent is to do",
        judge=_of(Attempt.SEND, _succeeds),
    ),
    Check(
        name="message-role",
        section="A2A 1.0 §4.1.4, §4.1.5, A2A 0.3 §6.4",
        fix="send messages of the agent with ROLE_AGENT (0.3: agent)",
        judge=_of(Attempt.SEND, _role),
        must=True,
    ),
    Check(
        name="context-kept",
        section="A2A 1.0 §3.4.1",
        fix="answer with the contextId that the caller gave, or refuse the message",
        judge=_of(Attempt.BEGIN, _keeps_context),
        must=True,
    ),
    Check(
        name="message-task",
        section="A2A 1.0 §3.4.2, §4.1.1",
        fix="make a task with a new id for each message that names none",
        judge=_of(Attempt.SEND, _own_task),
        must=True,
        hides=frozenset({"cancel", "list-filtered", "message-context", "task-listed", "task-read"}),
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
        hides=frozenset({"message-to-ended"}),
    ),
    Check(
        name="message-to-ended",
        section="A2A 1.0 §3.1.1",
        fix="answer UnsupportedOperationError: what follows is a new task with the same contextId",
        judge=_of(Attempt.SEND_TO_ENDED, _to_ended),
        must=True,
    ),
    Check(
        name="stream",
        section="A2A 1.0 §3.1.2, §3.3.4",
        fix="serve streams, or say streaming: false in the capabilities",
        judge=_of(Attempt.STREAM, _streamed),
        must=True,
    ),
    Check(
        name="stream-type",
        section="A2A 1.0 §9.4.2, §11.7",
        fix="answer with Content-Type: text/event-stream, and an event for each update",
        judge=_of(Attempt.STREAM, _stream_type),
        must=True,
        hides=frozenset({"stream", "stream-begins", "stream-ends", "stream-frames", "stream-first-update"}),
    ),
    Check(
        name="stream-frames",
        section="A2A 1.0 §9.4.2, HTML standard §9.2",
        fix="send each update as one event, `data: ` and JSON, with an empty line behind it",
        judge=_of(Attempt.STREAM, _stream_frames),
        must=True,
        hides=frozenset({"stream", "stream-begins", "stream-ends"}),
    ),
    Check(
        name="stream-begins",
        section="A2A 1.0 §3.1.2",
        fix="begin a stream with the task, or with the one message that is the answer",
        judge=_of(Attempt.STREAM, _stream_begins, only_1=True),
        must=True,
    ),
    Check(
        name="stream-ends",
        section="A2A 1.0 §3.1.2, A2A 0.3 §7.2",
        fix="keep the stream open until the task has ended or waits for its caller, and send that status last",
        judge=_of(Attempt.STREAM, _stream_ends),
        must=True,
    ),
    Check(
        name="stream-closes",
        section="A2A 1.0 §3.1.2, A2A 0.3 §7.2",
        fix="close the stream once the task has ended",
        judge=_of(Attempt.STREAM, _stream_closes),
        must=True,
    ),
    Check(
        name="stream-after-end",
        section="A2A 1.0 §3.1.2, §3.4.2",
        fix="send nothing after completed, failed, canceled or rejected: send artifacts before the last status",
        judge=_of(Attempt.STREAM, _stream_after_end),
        must=True,
    ),
    Check(
        name="stream-ids",
        section="A2A 1.0 §4.2, §3.4.1",
        fix="name the one task and the one context of the stream in each update",
        judge=_of(Attempt.STREAM, _stream_ids),
        must=True,
    ),
    Check(
        name="stream-final",
        section="A2A 0.3 §7.2.2",
        fix="send the last status of a stream with final: true",
        judge=_of(Attempt.STREAM, _stream_final),
        must=True,
    ),
    Check(
        name="stream-chunks",
        section="A2A 1.0 §4.2.2, A2A 0.3 §7.2.3",
        fix="send the first chunk of an artifact without append",
        judge=_of(Attempt.STREAM, _stream_chunks),
        must=True,
    ),
    Check(
        name="stream-live",
        section="measured",
        fix="flush each update, and let no proxy hold it back: X-Accel-Buffering: no, or proxy_buffering off",
        judge=_of(Attempt.STREAM, _live),
        hides=frozenset({"stream-first-update"}),
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
        name="subscribe",
        section="A2A 1.0 §3.1.6, A2A 0.3 §7.9",
        fix="answer a subscription with a stream that begins with the task as it is",
        judge=_of(Attempt.SUBSCRIBE, _subscribed),
        must=True,
    ),
    Check(
        name="cancel",
        section="A2A 1.0 §3.1.5",
        fix="stop the work and set the task to canceled, or answer TaskNotCancelableError",
        judge=_of(Attempt.CANCEL, _cancel, vendors=True),
        hides=frozenset({"left-running"}),
    ),
    Check(
        name="left-running",
        section="measured",
        fix="cancel these tasks by hand, and see why they cannot be canceled",
        judge=_of(Attempt.LEFT, _left, vendors=True),
    ),
    Check(
        name="task-read",
        section="A2A 1.0 §3.1.3",
        fix="keep a task for as long as its caller may ask for it",
        judge=_of(Attempt.GET, _read, vendors=True),
        must=True,
        hides=frozenset({"cancel", "history-length", "subscribe", "task-listed"}),
    ),
    Check(
        name="history-length",
        section="A2A 1.0 §3.2.4",
        fix="send no more than historyLength messages of the history, the newest",
        judge=_of(Attempt.READ_AGAIN, _history, only_1=True),
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
        name="list-filtered",
        section="A2A 1.0 §3.1.4",
        fix="apply contextId, and leave artifacts out unless includeArtifacts is true",
        judge=_of(Attempt.LIST, _filtered, only_1=True),
        must=True,
    ),
    Check(
        name="list-order",
        section="A2A 1.0 §3.1.4",
        fix="sort tasks by the timestamp of their status, in descending order",
        judge=_of(Attempt.LIST, _ordered, only_1=True),
        must=True,
    ),
    Check(
        name="list-pages",
        section="A2A 1.0 §3.1.4",
        fix="begin a page behind the last task of the one before, and send nextPageToken while more tasks follow",
        judge=_of(Attempt.PAGE, _pages, only_1=True),
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
        judge=_of(Attempt.WEBHOOK, _webhook, vendors=True),
    ),
    Check(
        name="push-called",
        section="A2A 1.0 §3.5, §4.3.3",
        fix="call the webhooks of a task at each change of its state: many SDKs need a push sender for that",
        judge=_of(Attempt.CALLED, _called),
        must=True,
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
