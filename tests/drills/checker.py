"""Compares what clients were told with what the store holds afterwards. Pure: two values in, faults out.

Invariant: each function states one promise and returns a line for each breach of it, with the task's id.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from dragoman.model.task import INTERRUPTED, TERMINAL
from tests.drills.record import Record, Seen

ENDS = frozenset(state.value for state in TERMINAL)
WAITS = frozenset(state.value for state in INTERRUPTED)


class Kept(NamedTuple):
    """A task as the store has it. `events` are those that callers see, `tells` the seqs that webhooks must be told."""

    task_id: str
    agent: str
    message_id: str
    text: str
    state: str
    holder: str | None
    events: tuple[Seen, ...]
    messages: tuple[str, ...] = ()
    tells: tuple[int, ...] = ()


Store = Mapping[str, Kept]


def faults(record: Record, store: Store, *, stopped: bool = False) -> list[str]:
    """Every breach of every promise. Webhook calls may overlap where a process was `stopped` for a while."""
    found = [
        *lost_messages(record, store),
        *lost_answers(record, store),
        *doubled_tasks(store),
        *changed_ends(record, store),
        *wrong_streams(record, store),
        *mixed_runs(store),
        *stuck_tasks(store),
        *wrong_webhooks(record, store),
    ]
    return found if stopped else [*found, *overlapping_webhooks(record)]


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
