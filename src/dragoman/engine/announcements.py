"""Announcements: the webhook deliveries for the events of a task.

Invariant: every status and every complete artifact is handed to the announcer once, with the write of the event that
made it so. The engine decides what is reported and when; the announcer decides the wording and how it is sent.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.push import ARTIFACT
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.lifecycle import SPELLED, Fold
from dragoman.model.operations import PushConfig
from dragoman.model.task import TERMINAL, Record, TaskHead, TaskState
from dragoman.store.api import Append
from dragoman.store.outbox import Delivery, Registration


class WebhookStep(Struct, frozen=True, kw_only=True):
    """One event of a task for its webhooks. `state` is the state after it, `whole` are the artifacts that it completed.

    `event` None means that nothing happened: a webhook was registered and gets the task as it stands. `stands` returns
    the task up to the event; it is folded on the first call, which must come before the task goes on. `changes` says
    that the state is new, or that the task is to be reported as it stands. `again` says that the artifact had been
    complete before.
    """

    seq: int
    event: Event | None
    state: TaskState
    stands: Callable[[], Record]
    whole: tuple[str, ...] = ()
    changes: bool = True
    again: bool = False


class PutOff(Struct, frozen=True):
    """The reports that a task holds back, because the cost of each grows with the size of the task.

    `dialects` are those that send the whole task, which is too large to be sent except for a change of its state.
    `artifacts` grew after they were complete, and wait for the task to settle; `doubtful` ones may have grown.
    """

    dialects: frozenset[str] = frozenset()
    artifacts: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()


class Announcer(Protocol):
    """Turns the events of a task into deliveries, and has them sent. Without an announcer there is no push."""

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """The configuration as it is stored. `field` is the path of its URL in the caller's request.

        Raises InvalidParams, naming the URL and the obstacle, if the URL may not be called from here. Raises
        Unavailable while no webhook is called.
        """
        ...

    def deliveries(
        self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[WebhookStep], put_off: PutOff
    ) -> tuple[tuple[Delivery, ...], PutOff]:
        """Render the deliveries of `steps` to `configs`, in order. Also returns what is put off after them."""
        ...

    def possible_bodies(self, head: TaskHead, step: WebhookStep, dialect: str) -> Iterable[bytes]:
        """Render all that `step` may have reported in a dialect, whatever was put off before it."""
        ...

    def wake(self) -> None:
        """Start sending, because deliveries were committed."""
        ...


log = logging.getLogger("dragoman.push")


class Audience:
    """The webhook configurations of a task, oldest first, as committed."""

    __slots__ = ("_announcer", "_put_off", "_put_off_next", "configs")

    def __init__(self, announcer: Announcer, configs: Iterable[PushConfig] = (), joined: Iterable[str] = ()) -> None:
        """`joined` are the complete artifacts that came in chunks, of a task with events before this process."""
        self.configs = tuple(configs)
        self._announcer = announcer
        self._put_off = PutOff(doubtful=frozenset(joined))
        self._put_off_next = self._put_off
        """The value of `_put_off` once the append under way is committed; an append that fails leaves the old one."""

    def join(self, config: PushConfig) -> None:
        """Add a configuration, in place of one with the same id."""
        self.configs = joined(self.configs, config)

    def renew(self, configs: Iterable[PushConfig]) -> None:
        """Take over the configurations as the store has them now."""
        self.configs = tuple(configs)

    def leave(self, configs: Iterable[PushConfig]) -> None:
        """Remove these configurations. One that has since replaced one of them stays."""
        gone = tuple(configs)
        self.configs = tuple(each for each in self.configs if not any(each is config for config in gone))

    def told(self, head: TaskHead, fold: Fold, append: Append) -> Append:
        """Return the append with the deliveries for its events. `fold` is the task before it.

        A webhook that is registered with the append gets at least the task as it stands then.
        """
        self._put_off_next = self._put_off
        joins = append.push.config if append.push is not None else None
        configs = self.configs if joins is None else joined(self.configs, joins)
        if not configs:
            return append
        try:
            steps = steps_of(fold, append.events, append.snapshot, states_wanted(configs))
            if not steps and joins is not None:
                record = append.snapshot or fold.ahead(append.events).record()
                configs, steps = (joins,), [standing_step(record)]
            if not steps:
                return append
            deliveries, self._put_off_next = self._announcer.deliveries(head, configs, steps, self._put_off)
        except Exception:  # a webhook must not keep its task from going on
            log.exception("task %s: the events after seq %d are not reported to its webhooks", head.id, fold.seq)
            return append
        return replace(append, deliveries=deliveries) if deliveries else append

    def beginning(self, head: TaskHead, events: Sequence[Event]) -> tuple[Delivery, ...]:
        """The deliveries for the first events of a task."""
        steps = steps_of(Fold(head), events, None, states_wanted(self.configs))
        if not steps:
            return ()
        deliveries, self._put_off = self._announcer.deliveries(head, self.configs, steps, self._put_off)
        self._put_off_next = self._put_off
        return deliveries

    def standing(self, head: TaskHead, config: PushConfig, record: Record) -> tuple[Delivery, ...]:
        """The deliveries to a webhook that was registered when the task stood at `record`."""
        steps = (standing_step(record),)
        deliveries, self._put_off = self._announcer.deliveries(head, (config,), steps, self._put_off)
        return deliveries

    def committed(self, append: Append) -> None:
        """Take over the webhook of the last append that `told` saw, and have its deliveries sent."""
        self._put_off = self._put_off_next
        if append.push is not None:
            self.join(append.push.config)
        if append.deliveries:
            self.wake()

    def wake(self) -> None:
        """Start sending, because deliveries were committed."""
        self._announcer.wake()


def standing_step(record: Record) -> WebhookStep:
    """The step that reports the current task."""
    return WebhookStep(seq=record.seq, event=None, state=record.state, stands=lambda: record)


def joined(configs: Sequence[PushConfig], config: PushConfig) -> tuple[PushConfig, ...]:
    """The configurations with `config` added, in place of one with the same id."""
    by_id = {each.id: each for each in configs}
    by_id[config.id] = config
    return tuple(by_id.values())


def states_wanted(configs: Iterable[PushConfig]) -> frozenset[str] | None:
    """The states of which configurations want to hear, as their `events` spell them.

    None if one of them also wants artifacts, or leaves the choice to its dialect.
    """
    wanted: frozenset[str] = frozenset()
    for config in configs:
        if not config.events or ARTIFACT in config.events:
            return None
        wanted = wanted.union(config.events)
    return wanted


def steps_of(
    fold: Fold, events: Sequence[Event], after: Record | None, states: frozenset[str] | None = None
) -> list[WebhookStep]:
    """The steps to report of `events`: each status, and each complete artifact. `fold` is the task before them.

    `after` is the task after all of them, if known; it saves folding them again. With `states` (see `states_wanted`)
    only the statuses with these states are steps, without artifacts.
    """
    if states is not None:
        return _status_steps(fold, events, after, states)
    steps: list[WebhookStep] = []
    ahead = _Ahead(fold, events, after)
    state = fold.status.state if fold.status is not None else TaskState.SUBMITTED
    still_open = dict.fromkeys(fold.open_artifacts)
    closed: set[str] = set()
    for index, event in enumerate(events):
        whole: tuple[str, ...] = ()
        changes = again = False
        match event:
            case ArtifactChunk(artifact, append, last_chunk):
                key = artifact.artifact_id
                if not last_chunk:
                    still_open[key] = None
                    continue
                again = append and key not in still_open and (key in closed or fold.holds(key))
                still_open.pop(key, None)
                closed.add(key)
                whole = (key,)
            case StatusChanged(to):
                changes = to is not state
                state = to
                whole = tuple(still_open) if to in TERMINAL else ()
            case Submitted():
                changes = True
            case _:
                continue
        stands, seq = _Stands(ahead, index), fold.seq + index + 1
        step = WebhookStep(seq=seq, event=event, state=state, stands=stands, whole=whole, changes=changes, again=again)
        steps.append(step)
    return steps


def _status_steps(
    fold: Fold, events: Sequence[Event], after: Record | None, states: frozenset[str]
) -> list[WebhookStep]:
    """The steps of `steps_of` for webhooks that want only some states: most events cost them nothing."""
    steps: list[WebhookStep] = []
    ahead = _Ahead(fold, events, after)
    state = fold.status.state if fold.status is not None else TaskState.SUBMITTED
    for index, event in enumerate(events):
        if type(event) is StatusChanged:
            before, state = state, event.state
            changes = state is not before
        elif type(event) is Submitted:
            changes = True
        else:
            continue
        if SPELLED[state] in states:
            stands, seq = _Stands(ahead, index), fold.seq + index + 1
            steps.append(WebhookStep(seq=seq, event=event, state=state, stands=stands, changes=changes))
    return steps


class _Stands:
    """The task after one of the events, folded when it is first asked for."""

    __slots__ = ("_ahead", "_index", "_record")

    def __init__(self, ahead: "_Ahead", index: int) -> None:
        self._ahead = ahead
        self._index = index
        self._record: Record | None = None

    def __call__(self) -> Record:
        if self._record is None:
            self._record = self._ahead.record(self._index)
        return self._record


class _Ahead:
    """The task after each of some events, folded on demand. Ascending order costs least."""

    __slots__ = ("_added", "_after", "_ahead", "_events", "_fold")

    def __init__(self, fold: Fold, events: Sequence[Event], after: Record | None) -> None:
        self._fold = fold
        self._events = events
        self._after = after
        self._ahead: Fold | None = None
        self._added = 0

    def record(self, index: int) -> Record:
        """The task after the event at `index`."""
        if self._after is not None and index == len(self._events) - 1:
            return self._after
        if self._ahead is None or self._added > index + 1:
            self._ahead, self._added = self._fold.ahead(), 0
        for event in self._events[self._added : index + 1]:
            self._added += 1
            self._ahead.add(self._fold.seq + self._added, event)
        return self._ahead.record()
