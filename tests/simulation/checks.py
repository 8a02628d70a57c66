"""The rules for a history (docs/architecture.md, invariants 1 to 5, 9 and 12), as pure functions.

Invariant: a violation is found at the happening that shows it, so that each step of a simulation is checked.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from dragoman.model.events import Event, MessageReceived, StatusChanged, Stepped, Submitted
from dragoman.model.lifecycle import FOLLOWS, SPELLED
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskState
from dragoman.store.api import ASLEEP
from dragoman.store.worker_leases import WORKER
from tests.simulation import history as h
from tests.simulation.agents import (
    AGENTS,
    HIRED,
    branches_differ,
    branches_of,
    expected,
    expected_answer,
    own_answers,
    sleeps,
    text_of,
)
from tests.simulation.database import Database, Row
from tests.simulation.soon import SOON_S


class Known:
    """The facts known of a task as the history goes on."""

    def __init__(self) -> None:
        self.agent = ""
        self.parent: str | None = None
        self.events: list[Event] = []
        self.states: list[TaskState] = [TaskState.SUBMITTED]
        self.epoch = 0
        self.writers: dict[int, str] = {}
        self.told_s: list[float] = []
        self.told_seq: list[int] = []
        self.messages = 0
        self.streams: dict[tuple[str, int], int] = {}
        self.swept_s = float("inf")
        """When it was deleted."""
        self.rewound_s = float("-inf")
        """When the database has lost the last of what it had."""
        self.former: list[Event] = []
        """The events before that."""
        self.former_states: list[TaskState] = []
        self.stepped: dict[str, tuple[int, int]] = {}
        """The steps that are recorded: each with its seq, and the epoch of the run that has recorded it."""
        self.slept: dict[str, int] = {}
        """The sleeps that are recorded, by place, with their seq."""
        self.stale: set[tuple[str, int]] = set()
        """The streams that have shown what is lost. They have to end."""

    def go_back(self, at_s: float, seq: int, epoch: int) -> None:
        """Forget what the database has lost."""
        self.writers = {known: by for known, by in self.writers.items() if known <= epoch}
        self.epoch = min(self.epoch, epoch)
        self.stepped = {step: known for step, known in self.stepped.items() if known[0] <= seq}
        self.slept = {place: known for place, known in self.slept.items() if known <= seq}
        if seq < len(self.events):
            self.rewound_s, self.former, self.former_states = at_s, self.events, self.states
            self.events, self.states = self.events[:seq], self.states[: seq + 1]
            told = [(told_s, told) for told_s, told in zip(self.told_s, self.told_seq, strict=True) if told <= seq]
            self.told_s, self.told_seq = [told_s for told_s, _ in told], [told for _, told in told]
            self.stale |= {key for key, shown in self.streams.items() if shown > seq}

    def shows(self, seq: int, event: Event | None, state: TaskState | None) -> bool:
        """Whether that is what the database has."""
        if seq > len(self.events):
            return False
        return self.events[seq - 1] == event if event is not None else state is None or self.states[seq] is state

    def said_again(self, seq: int) -> bool:
        """Whether the events up to `seq` that were lost have come again, word for word, but for when a message came."""
        if seq > min(len(self.former), len(self.events)):
            return False
        return all(_timeless(was) == _timeless(now) for was, now in zip(self.former[:seq], self.events, strict=False))

    def shown_before(self, at_s: float, seq: int, event: Event | None, state: TaskState | None) -> bool:
        """Whether somebody may still be shown what the database has lost a moment ago."""
        if at_s > self.rewound_s + SOON_S or seq > len(self.former):
            return False
        if event is not None:
            return self.former[seq - 1] == event
        return state is None or self.former_states[seq] is state

    def told_before(self, at_s: float) -> int:
        """The highest seq that anybody was told before a time."""
        place = bisect_left(self.told_s, at_s)
        return self.told_seq[place - 1] if place else 0

    def tell(self, at_s: float, seq: int) -> None:
        """Note that somebody was told of `seq`."""
        if not self.told_seq or seq > self.told_seq[-1]:
            self.told_s.append(at_s)
            self.told_seq.append(seq)


def check(history: h.History) -> list[str]:
    """Everything that is wrong with a history, each with its time."""
    checking = _Checking()
    for at_s, happening in history.happenings:
        for wrong in checking.step(at_s, happening):
            checking.found.append(f"{at_s:.3f}: {wrong}")
    return checking.found


class _Checking:
    """The fold over a history."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._tasks: dict[str, Known] = {}
        self._made: dict[str, str] = {}
        self._answers: dict[str, str] = {}
        """The Message that answered a caller's message."""
        self._webhook_ids: dict[str, tuple[str, str, int]] = {}
        self._hooked: dict[tuple[str, str], int] = {}
        self._owned: dict[str, list[tuple[float, str]]] = {}
        self._cancels: set[str] = set()
        """The tasks that somebody asked to cancel."""
        self._went_back = False
        """Whether the database has lost commits, so that what followed from them may follow from nothing."""

    def _task(self, task_id: str) -> Known:
        known = self._tasks.get(task_id)
        if known is None:
            known = self._tasks[task_id] = Known()
        return known

    def step(self, at_s: float, happening: h.Happening) -> Iterable[str]:
        """The faults of one happening, after those before it."""
        match happening:
            case h.Committed():
                return self._committed(happening)
            case h.Leased():
                return self._leased(happening)
            case h.Asked(_, _, "cancel", task_id):
                self._cancels.add(task_id)
                return ()
            case h.Executed():
                return self._executed(happening)
            case h.Remembered():
                return self._remembered(happening)
            case h.Told():
                return self._told(at_s, happening)
            case h.Answered():
                return self._answered(happening)
            case h.Followed():
                return self._followed(at_s, happening)
            case h.Left(client, stream, task_id):
                self._left(client, stream, task_id)
                return ()
            case h.Swept(task_id):
                return self._swept(at_s, task_id)
            case h.Rewound(tasks):
                self._rewound(at_s, tasks)
                return ()
            case h.Listed():
                return self._listed(happening)
            case h.Beat(replica, alive):
                return () if alive else (f"the heartbeat of {replica} was renewed after it had expired",)
            case h.Revived(token):
                return (f"lease {token} was renewed after it had run out (invariant 5)",)
            case h.Erred(client, what, task_id, error, possible):
                return () if possible else (f"{client} cannot {what} {task_id}: {error}",)
            case h.Leaked(client, what, task_id):
                return (f"{client} sees {task_id}, which is not its own, by {what}",)
            case h.Delivered():
                return self._delivered(happening)
            case h.Complained(by, text):
                return (f"{by} logged an error: {text}",)
            case _:
                return ()

    def _committed(self, made: h.Committed) -> Iterable[str]:
        if made.first == 1 and made.parent is not None and self._task(made.task_id).swept_s < float("inf"):
            del self._tasks[made.task_id]  # its parent, whose run began again, has not seen the end of the first one
        task, where = self._task(made.task_id), f"task {made.task_id}, seq {made.first}"
        task.agent, task.parent = made.agent, made.parent
        if made.first != len(task.events) + 1:
            yield f"{where}: the log has {len(task.events)} events (invariant 3)"
        if made.token is not None and not made.runs:
            yield f"{where}: a worker writes whose lease {made.token} is over (invariant 5)"
        writes_as = made.by if made.token is None else WORKER
        falls_asleep = made.holder == ASLEEP and any(map(sleeps, made.events))
        holder = made.by if falls_asleep else made.holder
        if made.run is not None and holder is not None and holder.partition("+")[0] != writes_as:
            yield f"{where}: {made.by} writes as a run, and {made.holder} has the lease (invariant 5)"
        if made.run is not None:
            own = made.token or made.by
            writer = task.writers.setdefault(made.run, own)
            if writer != own:
                yield f"{where}: {writer} and {own} both write as runs of epoch {made.run} (invariant 5)"
            if made.run != made.epoch - falls_asleep:
                yield f"{where}: a run of epoch {made.run} writes in epoch {made.epoch} (invariant 5)"
        task.epoch = made.epoch
        for event in made.events:
            state = task.states[-1]
            if state in TERMINAL:
                yield f"{where}: something follows {SPELLED[state]} (invariant 4)"
            if isinstance(event, StatusChanged):
                if sleeps(event) and event.placed is not None:
                    if event.placed.place in task.slept:
                        yield f"{where}: the sleep at {event.placed.place} is slept twice"
                    task.slept[event.placed.place] = len(task.events) + 1
                if event.state not in FOLLOWS[state] and state not in TERMINAL:
                    yield f"{where}: {SPELLED[event.state]} follows {SPELLED[state]}"
                if event.state in INTERRUPTED and made.run is not None:
                    yield from _overtakes(where, event, task)
                if event.state is TaskState.CANCELED and made.run is None:
                    yield from self._canceled_early(where, task, made.task_id)
                state = event.state
            elif isinstance(event, Submitted | MessageReceived):
                other = self._made.setdefault(event.message.message_id, made.task_id)
                if other != made.task_id or any(
                    isinstance(known, Submitted | MessageReceived)
                    and known.message.message_id == event.message.message_id
                    for known in task.events
                ):
                    yield f"{where}: message {event.message.message_id} was written before, to {other}"
                if event.message.message_id in self._answers:
                    yield f"{where}: message {event.message.message_id} was answered before, without a task"
                task.messages += isinstance(event, MessageReceived)
            elif isinstance(event, Stepped) and not event.name.startswith("$"):
                if event.name in task.stepped:
                    yield f"{where}: step {event.name} is recorded twice"
                task.stepped[event.name] = len(task.events) + 1, made.run or 0
            task.events.append(event)
            task.states.append(state)

    def _canceled_early(self, where: str, task: Known, task_id: str) -> Iterable[str]:
        """A delegation is canceled because one of the tasks above it has ended, or somebody asked to cancel one."""
        above: str | None = None if self._went_back else task_id
        while above is not None:
            known = self._tasks.get(above)
            if above in self._cancels or known is None or known.states[-1] in TERMINAL:
                return
            above = known.parent
        if task.parent is not None and not self._went_back:
            yield f"{where}: canceled, though nobody asked for it and the task that delegated it goes on (invariant 2)"

    def _executed(self, made: h.Executed) -> Iterable[str]:
        """A run executes no step that its log held when it began; a paused one knows no better."""
        task = self._task(made.task_id)
        branch, _, number = made.step.partition(".")
        if number != "0" and f"{branch}.{int(number) - 1}" not in task.stepped and not self._went_back:
            yield f"task {made.task_id}: {made.by} executes step {made.step}, and the one before is not recorded"
        _, epoch = task.stepped.get(made.step, (0, made.epoch))
        if epoch < made.epoch:
            yield f"task {made.task_id}: {made.by} executes step {made.step}, which a run of epoch {epoch} has recorded"

    def _remembered(self, made: h.Remembered) -> Iterable[str]:
        """State is written by the run that has the task."""
        task = self._task(made.task_id)
        if made.epoch != task.epoch or (task.states and task.states[-1] in TERMINAL):
            yield f"task {made.task_id}: {made.by} writes state under epoch {made.epoch}, not {task.epoch}"

    def _leased(self, made: h.Leased) -> Iterable[str]:
        task = self._task(made.task_id)
        if made.alive and not made.lapsed and made.holder not in (made.before, ASLEEP):  # a run puts its own to sleep
            yield f"task {made.task_id}: leased to {made.holder}, though {made.before} is alive (invariant 5)"
        task.epoch = made.epoch

    def _swept(self, at_s: float, task_id: str) -> Iterable[str]:
        """A task was deleted. What its messages did is forgotten with it, so that they may come again."""
        task = self._task(task_id)
        task.swept_s = at_s
        if task.states[-1] not in TERMINAL:
            yield f"task {task_id} is deleted, which is {SPELLED[task.states[-1]]}"
        for event in task.events:
            if isinstance(event, Submitted | MessageReceived):
                self._made.pop(event.message.message_id, None)
        for client, owned in self._owned.items():
            self._owned[client] = [(told_s, owned_id) for told_s, owned_id in owned if owned_id != task_id]

    def _rewound(self, at_s: float, tasks: Mapping[str, tuple[int, int]]) -> None:
        """The database has lost its last commits, and nobody is bound to what was said of them."""
        self._went_back = True
        for task_id, task in self._tasks.items():
            seq, epoch = tasks.get(task_id, (0, 0))
            for event in task.events[seq:]:
                if isinstance(event, Submitted | MessageReceived):
                    self._made.pop(event.message.message_id, None)
            task.go_back(at_s, seq, epoch)
        self._answers.clear()
        self._hooked.clear()
        for client, owned in self._owned.items():
            self._owned[client] = [(told_s, task_id) for told_s, task_id in owned if task_id in tasks]

    def _left(self, client: str, stream: int, task_id: str) -> None:
        """A stream that has shown what is lost has ended. Whoever comes back with its place gets what follows it."""
        task, key = self._task(task_id), (client, stream)
        if key in task.stale:
            task.stale.discard(key)
            del task.streams[key]

    def _seen(
        self, at_s: float, who: str, task_id: str, seq: int, state: TaskState | None, asked_s: float
    ) -> Iterable[str]:
        """A client sees a task at `seq`, having asked at `asked_s`."""
        task = self._task(task_id)
        if task.shown_before(at_s, seq, None, state):
            return
        if asked_s > task.swept_s:
            yield f"{who} sees {task_id}, which was deleted at {task.swept_s:.3f} (invariant 9)"
        if seq > len(task.events):
            yield f"{who} sees seq {seq}, but the log of {task_id} ends at {len(task.events)} (invariant 2)"
        elif state is not None and task.states[seq] is not state:
            yield f"{who} sees {task_id} {SPELLED[state]} at {seq}, but it is {SPELLED[task.states[seq]]} (invariant 1)"
        if (told := task.told_before(asked_s)) > seq:
            yield f"{who} sees {task_id} at {seq}, though seq {told} had been told before it asked (invariant 3)"

    def _told(self, at_s: float, made: h.Told) -> Iterable[str]:
        task = self._task(made.task_id)
        yield from self._seen(at_s, f"{made.client} ({made.what})", made.task_id, made.seq, made.state, made.asked_s)
        lost = at_s <= task.rewound_s + SOON_S and made.seq <= len(task.former)
        lost = lost or at_s > task.swept_s
        if made.message:
            if not lost and self._made.get(made.message) != made.task_id:
                yield f"{made.client} was told that {made.message} is in {made.task_id}, but it is not (invariant 2)"
            if made.what == "send" and task.events and not lost:
                self._owned.setdefault(made.client, []).append((at_s, made.task_id))
        if not lost:
            task.tell(at_s, made.seq)

    def _answered(self, made: h.Answered) -> Iterable[str]:
        who = f"{made.client} is answered {made.message}"
        if (answer := self._answers.setdefault(made.message, made.answer)) != made.answer:
            yield f"{who} with {made.answer}, and was with {answer}"
        if (task_id := self._made.get(made.message)) is not None:
            yield f"{who}, which is in {task_id}"
        if made.text != (wanted := expected_answer(made.script)):
            yield f"{who} with {made.text!r}, which should be {wanted!r}"

    def _followed(self, at_s: float, made: h.Followed) -> Iterable[str]:
        task, key = self._task(made.task_id), (made.client, made.stream)
        who = f"{made.client} (stream {made.stream})"
        shown_before = not task.shows(made.seq, made.event, made.state) and task.shown_before(
            at_s, made.seq, made.event, made.state
        )
        if shown_before and made.seq > task.streams.get(key, 0):
            task.streams[key] = made.seq
            if made.seq > len(task.events) or task.former[: made.seq] != task.events[: made.seq]:
                task.stale.add(key)
            return
        if made.event is None:
            if key in task.streams and key not in task.stale and made.seq < task.streams[key]:
                yield f"{who}: {made.task_id} goes back to {made.seq} (invariant 3)"
            yield from self._seen(at_s, who, made.task_id, made.seq, made.state, made.asked_s)
            task.stale.discard(key)  # whoever comes back with a place that is lost begins with the task
        else:
            after = task.streams.get(key)
            if key in task.stale and task.said_again(task.streams[key]):
                task.stale.discard(key)
            if key in task.stale:
                yield f"{who}: seq {made.seq} of {made.task_id} follows what the database has lost (invariant 2)"
            if after is not None and made.seq != after + 1:
                yield f"{who}: seq {made.seq} of {made.task_id} follows {after} (invariant 3)"
            elif made.seq > len(task.events):
                yield f"{who}: seq {made.seq} of {made.task_id} is not committed (invariant 2)"
            elif task.events[made.seq - 1] != made.event:
                yield (
                    f"{who}: seq {made.seq} of {made.task_id} is {h.describe(task.events[made.seq - 1])}, "
                    f"not {h.describe(made.event)} (invariant 3)"
                )
        task.streams[key] = made.seq
        task.tell(at_s, made.seq)

    def _listed(self, made: h.Listed) -> Iterable[str]:
        for task_id, owner in zip(made.task_ids, made.owners, strict=True):
            if owner != made.client:
                yield f"{made.client} sees {task_id} of {owner} in a list (invariant 9)"
        for told_s, task_id in self._owned.get(made.client, ()):
            first = self._task(task_id).events[0]
            assert isinstance(first, Submitted)
            if told_s < made.asked_s and made.agent == agent_of(first) and task_id not in made.task_ids:
                yield f"{made.client} does not see its task {task_id} in a list (invariant 1)"

    def _delivered(self, made: h.Delivered) -> Iterable[str]:
        key = (made.task_id, made.config_id)
        repeated = made.webhook_id in self._webhook_ids
        known = self._webhook_ids.setdefault(made.webhook_id, (*key, made.seq))
        if known != (*key, made.seq):
            yield f"webhook-id {made.webhook_id} stands for {known} and for {(*key, made.seq)}"
        committed = self._task(made.task_id).events[made.seq - 1 :]  # others may have written before its event
        if not self._went_back and made.said and made.said not in map(h.describe, committed):
            yield f"webhook {made.config_id} of {made.task_id} hears of {made.said}: not committed (invariant 2)"
        if made.seq < self._hooked.get(key, 0) and not repeated:
            yield f"webhook {made.config_id} of {made.task_id} hears of {made.seq} after {self._hooked[key]}"
        self._hooked[key] = max(made.seq, self._hooked.get(key, 0))


def agent_of(first: Submitted) -> str:
    """The agent that a client's message was sent to; clients write it into the metadata."""
    return str((first.message.metadata or {}).get("agent", ""))


def _overtakes(where: str, question: StatusChanged, task: Known) -> Iterable[str]:
    """A question must not overtake a message: it is asked only if all earlier messages have been consumed."""
    asked = question.message
    if asked is None or asked.reference_task_ids or not asked.text.startswith("q"):
        return
    answers = len(own_answers([_Numbered(event) for event in task.events]))  # type: ignore[misc]
    if answers != int(asked.text[1:]):
        yield f"{where}: question {asked.text} overtakes {answers - int(asked.text[1:])} messages"


class _Numbered:
    """An event as `own_answers` reads it."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event


def _timeless(event: Event) -> Event:
    """The event as its record knows it: without the time at which a message came."""
    return replace(event, timestamp="") if isinstance(event, MessageReceived) else event


def check_end(database: Database, history: h.History) -> list[str]:
    """The faults that remain once all disturbances have ceased and everybody has had time."""
    asked = {each.task_id for _, each in history.happenings if isinstance(each, h.Asked) and each.what == "cancel"}
    died = any(isinstance(each, h.Gone | h.Rewound) for _, each in history.happenings)
    rewound = any(isinstance(each, h.Rewound) for _, each in history.happenings)
    found: list[str] = []
    for row in database.rows.values():
        found += _check_task(database, row, rewound=rewound)
        found += _check_reason(row, canceled=row.head.id in asked, died=died)
    found += _check_webhooks(database, history)
    found += _check_accounts(database)
    return found


def _check_accounts(database: Database) -> Iterable[str]:
    """What is reserved is held by the open tasks, and each task that is over was charged once: 1, as each claims."""
    held = Counter(
        one.account for row in database.rows.values() if row.state not in TERMINAL for one in row.head.reservations
    )
    for name, account in database.accounts.items():
        if account.reserved != held[name]:
            yield f"account {name} has {account.reserved} reserved, and its open tasks hold {held[name]}"
        over = account.claimed - account.reserved
        if account.used != over:
            yield f"account {name} was charged {account.used} for {over} tasks that are over"


def _check_reason(row: Row, *, canceled: bool, died: bool) -> Iterable[str]:
    """A task ends badly only for a reason that the scenario has."""
    last, first = row.log[row.seq - 1].event, row.log[0].event
    assert isinstance(first, Submitted)
    script = first.message.text.split()
    reason = ""
    if isinstance(last, StatusChanged) and last.message is not None:
        reason = str((last.message.metadata or {}).get("reason", ""))
    match row.state:
        case TaskState.FAILED:
            failure = "" if row.head.agent == HIRED else "agent_error"  # a worker gives no reason for programs
            possible = {failure} if "f" in script else set()
            stepped = any(isinstance(logged.event, Stepped) or sleeps(logged.event) for logged in row.log[: row.seq])
            if died and not AGENTS[row.head.agent] and not stepped:
                possible.add("interrupted")
            if reason not in possible:
                yield f"task {row.head.id} of {row.head.agent} failed: {reason} {last.message and last.message.text!r}"  # type: ignore[union-attr]
        case TaskState.REJECTED if "r" not in script:
            yield f"task {row.head.id} was rejected"
        case TaskState.CANCELED if not canceled and row.head.parent is None:
            yield f"task {row.head.id} was canceled, though nobody asked for it"
        case _:
            return


def _check_webhooks(database: Database, history: h.History) -> Iterable[str]:
    """Each registered webhook hears of the end of its task."""
    heard: dict[tuple[str, str], int] = {}
    for _, each in history.happenings:
        if isinstance(each, h.Delivered):
            heard[each.task_id, each.config_id] = max(each.seq, heard.get((each.task_id, each.config_id), 0))
    swept = {each.task_id for _, each in history.happenings if isinstance(each, h.Swept)}
    rewound_s = max((at_s for at_s, each in history.happenings if isinstance(each, h.Rewound)), default=-SOON_S)
    for at_s, each in history.happenings:
        if isinstance(each, h.Registered) and at_s > rewound_s + SOON_S:  # an earlier one may be lost
            row = database.rows.get(each.task_id)
            if each.task_id in swept:
                continue
            if row is None:
                yield f"webhook {each.config_id} was registered for {each.task_id}, which was lost before"
            elif row.state in TERMINAL and heard.get((each.task_id, each.config_id), 0) < row.seq:
                told = heard.get((each.task_id, each.config_id), 0)
                yield f"webhook {each.config_id} of {each.task_id} has heard of {told} last, the end is {row.seq}"
    waiting, dead = database.outbox.owed_count()
    if waiting or dead:
        yield f"{waiting} webhook calls are still owed, {dead} are given up"


def _check_task(database: Database, row: Row, *, rewound: bool) -> Iterable[str]:
    task_id, log = row.head.id, row.log[: row.seq]
    if row.state not in TERMINAL and not (row.state in INTERRUPTED and row.holder is None):
        yield f"task {task_id} is stuck: {SPELLED[row.state]}, held by {row.holder}, epoch {row.epoch}"
    if row.state in TERMINAL and row.holder is not None:
        yield f"task {task_id} has ended, and is held by {row.holder}"
    record = database.record(task_id)
    if row.snapshot is not None and row.snapshot.seq == row.seq and row.snapshot != record:
        yield f"task {task_id}: its snapshot is not what its log folds to (invariant 1)"
    if record.state is not row.state:
        yield f"task {task_id}: its row says {SPELLED[row.state]}, its log {SPELLED[record.state]} (invariant 1)"
    if row.state is not TaskState.COMPLETED:
        return
    first = log[0].event
    assert isinstance(first, Submitted)
    if branches_of(first.message.text):
        if differ := branches_differ(log, record):
            yield f"task {task_id}: {differ}\n{h.log_text(log)}"
        return
    text, wanted = text_of(record), expected(log)
    if rewound and wanted is not None:
        # A run may write memory under its lease after commits were lost on which that write depends.
        text, wanted = re.sub(r"\|\d+\|", "||", text), re.sub(r"\|\d+\|", "||", wanted)
    if text != wanted:
        yield f"task {task_id}: its agent gave out {text!r}, which should be {wanted!r}\n{h.log_text(log)}"
