"""Compares what clients were told with what the store holds afterwards. Pure: two values in, faults out.

Invariant: each function states one promise and returns a line for each breach of it, with the task's id.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from dragoman.model.task import INTERRUPTED, TERMINAL
from tests.drills.record import Executed, Record, Seen

ENDS = frozenset(state.value for state in TERMINAL)
WAITS = frozenset(state.value for state in INTERRUPTED)


class Journey(NamedTuple):
    """The shape of an agent that takes so many `steps`, sleeps before those in `naps`, and asks before the step `asks`.

    One that is not `restartable` goes on nevertheless, once its log holds a step. With `apart` the words after each
    step are an artifact, and with `pairs` those after two steps are a paragraph. One that takes each step at most
    `once` may fail within a step.
    """

    steps: int
    naps: tuple[int, ...] = ()
    asks: int = 0
    restartable: bool = False
    step: str = "step {}"
    apart: bool = False
    once: bool = False
    pairs: bool = False


TRIP = Journey(10, (4, 9), 7)
WALK = Journey(20)
CLERK = Journey(20, restartable=True, step="step-{}", apart=True)

JOURNEYS = {
    "trip": TRIP._replace(restartable=True),
    "trip-once": TRIP,
    "plain-trip": TRIP._replace(restartable=True),
    "plain-trip-once": TRIP,
    "walk": WALK,
    "plain-walk": WALK,
    "clerk": CLERK,
    "careful-clerk": CLERK._replace(once=True),
    "far-walk": WALK._replace(restartable=True),
    "far-plain-walk": WALK._replace(restartable=True),
    "graph": WALK._replace(restartable=True, pairs=True),
}
"""By the id of the agent."""

ANSWER = "Yes"


LATE_S = 2.0
"""How long after its time a sleep ends at most, or after the server is back that was away by then."""


class Recorded(NamedTuple):
    """A step as the log has it. `at_ms` is when it was recorded, since the epoch."""

    name: str
    place: str
    at_ms: float


class Slept(NamedTuple):
    """A sleep as the log has it."""

    place: str
    until_ms: float


class Kept(NamedTuple):
    """A task as the store has it. `events` are those that callers see, `tells` the seqs that webhooks must be told.

    `artifacts` are the texts of its artifacts. `uncertain`: a step was begun that must not be executed twice, and its
    outcome is not recorded.
    """

    task_id: str
    agent: str
    message_id: str
    text: str
    state: str
    holder: str | None
    events: tuple[Seen, ...]
    messages: tuple[str, ...] = ()
    tells: tuple[int, ...] = ()
    steps: tuple[Recorded, ...] = ()
    sleeps: tuple[Slept, ...] = ()
    artifacts: tuple[str, ...] = ()
    uncertain: bool = False


Store = Mapping[str, Kept]


def faults(record: Record, store: Store, *, stopped: bool = False, takeover_s: float = 0.0) -> list[str]:
    """Every breach of every promise.

    Webhook calls may overlap where a process was `stopped` for a while, and a step may be executed again.
    Another server takes over a task of one that is gone within `takeover_s`.
    """
    found = [
        *lost_messages(record, store),
        *lost_answers(record, store),
        *doubled_tasks(store),
        *changed_ends(record, store),
        *wrong_streams(record, store),
        *mixed_runs(store),
        *stuck_tasks(store),
        *wrong_webhooks(record, store),
        *wrong_steps(record, store),
        *wrong_ends(store),
        *early_naps(record, store),
        *late_naps(record, store, takeover_s),
    ]
    return found if stopped else [*found, *overlapping_webhooks(record), *repeated_steps(record, store)]


def lost_messages(record: Record, store: Store) -> Iterator[str]:
    """A message that was acknowledged has made the one task that was named, in the log of which it stands first."""
    for message_id, task_ids in record.acknowledged.items():
        if len(task_ids) > 1:
            yield f"message {message_id} was acknowledged with several tasks: {sorted(task_ids)}"
        for task_id in task_ids:
            if (kept := store.get(task_id)) is None:
                yield f"task {task_id} was acknowledged and is gone"
            elif kept.message_id != message_id:
                yield f"task {task_id} was acknowledged for message {message_id} and has {kept.message_id}"


def lost_answers(record: Record, store: Store) -> Iterator[str]:
    """An answer to a question that was acknowledged is in the task's log, once."""
    for task_id, message_ids in record.answered.items():
        known = Counter(store[task_id].messages) if task_id in store else Counter()
        for message_id in message_ids:
            if known[message_id] != 1:
                yield f"answer {message_id} is {known[message_id]} times in the log of task {task_id}"


def doubled_tasks(store: Store) -> Iterator[str]:
    """No message has made two tasks."""
    made = Counter(kept.message_id for kept in store.values())
    yield from (f"message {message_id} made {count} tasks" for message_id, count in made.items() if count > 1)


def changed_ends(record: Record, store: Store) -> Iterator[str]:
    """An end that was told is the end for good."""
    for task_id, states in record.ended.items():
        state = store[task_id].state if task_id in store else "gone"
        if states != {state}:
            yield f"task {task_id} was told to be {sorted(states)} and is {state}"


def wrong_streams(record: Record, store: Store) -> Iterator[str]:
    """A follower saw the events of the log, each once, in order, from where it began to where it stopped."""
    for task_id, seen in record.followed:
        if not seen:
            continue
        if (kept := store.get(task_id)) is None:
            yield f"task {task_id} was followed and is gone"
            continue
        first, *rest = seen
        begins_with_snapshot = first.kind == "task"
        followed = rest if begins_with_snapshot else seen
        last = seen[-1].seq
        expected = [event for event in kept.events if event.seq <= last and event.kind != "task"]
        expected = [event for event in expected if event.seq > first.seq or (not begins_with_snapshot)]
        if not begins_with_snapshot:
            expected = [event for event in expected if event.seq >= first.seq]
        if followed != expected:
            at = next(
                (n for n, pair in enumerate(zip(followed, expected, strict=False)) if pair[0] != pair[1]),
                min(len(followed), len(expected)),
            )
            yield f"task {task_id}: a follower saw {followed[at : at + 2]} where the log has {expected[at : at + 2]}"


def mixed_runs(store: Store) -> Iterator[str]:
    """Runs write one after the other: once another run has written, the earlier one writes no more, and none skips."""
    for kept in store.values():
        signed = [part for event in kept.events if event.kind == "text" for part in event.text.split() if "/" in part]
        runs = [run for run, _ in groupby(part.partition("/")[0] for part in signed)]
        if len(runs) != len(set(runs)):
            yield f"task {kept.task_id}: two runs wrote at the same time: {' '.join(signed)}"
        for run, parts in groupby(signed, lambda part: part.partition("/")[0]):
            numbers = [int(part.partition("/")[2]) for part in parts]
            if numbers != list(range(len(numbers))):
                yield f"task {kept.task_id}: run {run} wrote {numbers}"
        if kept.state == "TASK_STATE_COMPLETED" and kept.agent in ("again", "once"):
            total = int(kept.text.split()[0])
            whole = [part for part in signed if part.startswith(f"{runs[-1]}/")] if runs else []
            if len(whole) != total:
                yield f"task {kept.task_id} completed after {len(whole)} of {total} chunks"


def taken_over(store: Store) -> int:
    """How many tasks have the words of several runs: one died, and another one went on."""
    count = 0
    for kept in store.values():
        signed = (part for event in kept.events if event.kind == "text" for part in event.text.split() if "/" in part)
        count += len({part.partition("/")[0] for part in signed}) > 1
    return count


def stuck_tasks(store: Store) -> Iterator[str]:
    """Every task has ended, or waits for its caller. Nobody holds a task that has ended."""
    for kept in store.values():
        if kept.state not in ENDS | WAITS:
            yield f"task {kept.task_id} of {kept.agent} is {kept.state}, held by {kept.holder}"
        elif kept.holder is not None:
            yield f"task {kept.task_id} is {kept.state} and is held by {kept.holder}"
        ends = [event for event in kept.events if event.kind == "state" and event.text in ENDS]
        if len(ends) > 1 or (ends and kept.events[-1] != ends[0]):
            yield f"task {kept.task_id}: something follows its end: {kept.events[-3:]}"


def wrong_webhooks(record: Record, store: Store) -> Iterator[str]:
    """A webhook is told all that it must be told, in order; a repeat has the id and the body of the first call."""
    first: dict[str, bytes] = {}
    told: dict[str, list[int]] = defaultdict(list)
    for call in sorted(record.called, key=lambda call: call.began_s):
        if call.webhook_id in first:
            if first[call.webhook_id] != call.body:
                yield f"webhook {call.webhook_id} has two bodies"
            continue
        first[call.webhook_id] = call.body
        told[call.task_id].append(call.seq)
    for task_id in record.pushed:
        must = list(store[task_id].tells) if task_id in store else []
        if told[task_id] != must:
            yield f"task {task_id}: its webhook was told {told[task_id]} and had to be told {must}"


def overlapping_webhooks(record: Record) -> Iterator[str]:
    """At most one call of a configuration is under way; each task of a drill has one configuration."""
    ends: dict[str, tuple[float, str]] = {}
    for call in sorted(record.called, key=lambda call: call.began_s):
        ended_s, before = ends.get(call.task_id, (0.0, ""))
        if call.began_s < ended_s and before != call.webhook_id:
            yield f"task {call.task_id}: webhook {call.webhook_id} was called while {before} was under way"
        ends[call.task_id] = max(ends.get(call.task_id, (0.0, "")), (call.ended_s, call.webhook_id))


def executions(record: Record) -> Mapping[str, Mapping[int, Sequence[Executed]]]:
    """What the ledger has of each task, by the number of the step, in order."""
    found: dict[str, dict[int, list[Executed]]] = defaultdict(lambda: defaultdict(list))
    for executed in sorted(record.executed, key=lambda executed: executed.at_ms):
        found[executed.task_id][executed.number].append(executed)
    return found


def wrong_steps(record: Record, store: Store) -> Iterator[str]:
    """A step is recorded once, and not without having been executed. It is executed under one key, with what it had;
    once, where its agent says so."""
    executed = executions(record)
    for kept in store.values():
        if (journey := JOURNEYS.get(kept.agent)) is None:
            continue
        done, names = executed.get(kept.task_id, {}), [step.name for step in kept.steps]
        if names != [journey.step.format(number) for number in range(1, len(names) + 1)]:
            yield f"task {kept.task_id} has recorded {names}"
        if len({each.place for each in (*kept.steps, *kept.sleeps)}) != len(kept.steps) + len(kept.sleeps):
            yield f"task {kept.task_id}: two of its words have one place: {kept.steps}, {kept.sleeps}"
        for number in range(1, len(names) + 1):
            if not done.get(number):
                yield f"task {kept.task_id}: step {number} is recorded and was not executed"
        for number, lines in done.items():
            if len({(line.key, line.lot) for line in lines}) > 1:
                yield f"task {kept.task_id}: step {number} was executed as different ones: {lines}"
            if journey.once and len(lines) > 1:
                yield f"task {kept.task_id}: step {number} was executed {len(lines)} times"
        if len({line.key for lines in done.values() for line in lines}) != len(done):
            yield f"task {kept.task_id}: two steps were executed under one key: {done}"


def repeated_steps(record: Record, store: Store) -> Iterator[str]:
    """No step is executed once its log holds it, or once the next one is executed: then the log must hold it, too."""
    executed = executions(record)
    for kept in store.values():
        if kept.agent not in JOURNEYS:
            continue
        for number, step in enumerate(kept.steps, 1):
            lines, following = (executed.get(kept.task_id, {}).get(each, ()) for each in (number, number + 1))
            for line in lines:
                if line.at_ms >= step.at_ms + 1:  # the log counts whole milliseconds
                    yield f"task {kept.task_id}: {line} was executed after {step} was recorded"
            if following and lines and lines[-1].at_ms > following[0].at_ms:
                yield f"task {kept.task_id}: {lines[-1]} was executed after {following[0]}"


def wrong_ends(store: Store) -> Iterator[str]:
    """A journey is completed, with what an undisturbed one has. One that is not restartable may fail before its first
    record, and one that takes steps once within a step."""
    for kept in store.values():
        if (journey := JOURNEYS.get(kept.agent)) is None:
            continue
        if kept.state == "TASK_STATE_COMPLETED":
            if kept.artifacts != (undisturbed := tale(journey, kept.text)):
                yield f"task {kept.task_id} has {kept.artifacts}, and an undisturbed run has {undisturbed}"
            if (len(kept.steps), len(kept.sleeps)) != (journey.steps, len(journey.naps)):
                yield f"task {kept.task_id} completed with {len(kept.steps)} steps and {len(kept.sleeps)} sleeps"
        elif (journey.restartable or kept.steps or kept.sleeps) and not (journey.once and kept.uncertain):
            yield f"task {kept.task_id} of {kept.agent} is {kept.state} after {len(kept.steps)} steps"


def naps(record: Record, store: Store) -> Iterator[tuple[Kept, Slept, float]]:
    """Each sleep that ended, with its task and the time at which the step after it was executed first."""
    executed = executions(record)
    for kept in store.values():
        numbers = JOURNEYS[kept.agent].naps if kept.agent in JOURNEYS else ()
        for number, nap in zip(numbers, kept.sleeps, strict=False):
            if after := executed.get(kept.task_id, {}).get(number):
                yield kept, nap, after[0].at_ms


def early_naps(record: Record, store: Store) -> Iterator[str]:
    """No sleep ends early."""
    for kept, nap, at_ms in naps(record, store):
        if (early_ms := nap.until_ms - at_ms) > 0:
            yield f"task {kept.task_id}: a sleep ended {early_ms:.0f} ms early: {nap}"


def late_naps(record: Record, store: Store, takeover_s: float) -> Iterator[str]:
    """No sleep ends late."""
    for kept, nap, at_ms in naps(record, store):
        if (late_s := lateness_s(record, nap.until_ms, at_ms, takeover_s)) > LATE_S:
            yield f"task {kept.task_id}: a sleep ended {late_s:.2f} s late: {nap}"


def lateness_s(record: Record, until_ms: float, at_ms: float, takeover_s: float) -> float:
    """How long after its time, or after the end of a disturbance that began before it could end, a sleep ended."""
    due_ms = until_ms
    for began_ms, ended_ms in sorted(record.disturbed):
        if began_ms <= due_ms + LATE_S * 1000:
            due_ms = max(due_ms, ended_ms + takeover_s * 1000)
    return (at_ms - due_ms) / 1000


def tale(journey: Journey, text: str) -> tuple[str, ...]:
    """The artifacts that a journey writes if nothing disturbs it: a question ends one of them."""
    told = [f"{number}. {text} " for number in range(1, journey.steps + 1)]
    if journey.apart:
        return tuple(told)
    if journey.pairs:
        return ("\n\n".join(map("".join, zip(told[::2], told[1::2], strict=True))),)
    if not journey.asks:
        return ("".join(told),)
    before, after = told[: journey.asks - 1], told[journey.asks - 1 :]
    return "".join(before), "".join((f"{ANSWER}: ", *after))
