"""Audience: the webhooks of a task, and what they are told of it (DESIGN §7).

Invariant: every status and every artifact that is whole is told once, with the write of the event that made it so.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from dragoman.engine.api import Announcer, Step
from dragoman.engine.lifecycle import Fold
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.operations import PushConfig
from dragoman.model.task import TERMINAL, Record, TaskHead
from dragoman.store.api import Append
from dragoman.store.outbox import Delivery

log = logging.getLogger("dragoman.push")


class Audience:
    """The webhook configurations of a task, oldest first, as far as they are committed or on their way.

    `turns` are the writes of the task that wait for those before them: what is told of an event is written with it, so
    it must be known what the task was before. `joining` counts the registrations that are under way.
    """

    __slots__ = ("_announcer", "configs", "joining", "turns")

    def __init__(self, announcer: Announcer, configs: Iterable[PushConfig] = ()) -> None:
        self.configs = tuple(configs)
        self.turns: deque[Callable[[], None]] = deque()
        self.joining = 0
        self._announcer = announcer

    def join(self, config: PushConfig) -> None:
        """From now on it is told too, in place of one of the same id."""
        self.configs = joined(self.configs, config)

    def leave(self, configs: Iterable[PushConfig]) -> None:
        """These are told nothing more; one that has taken the place of one of them still is."""
        gone = tuple(configs)
        self.configs = tuple(each for each in self.configs if not any(each is config for config in gone))

    def told(self, head: TaskHead, fold: Fold, append: Append) -> Append:
        """The append with what is told of its events, where `fold` is the task before it.

        A webhook that comes with it is told at least how the task stands then.
        """
        joins = append.push.config if append.push is not None else None
        configs = self.configs if joins is None else joined(self.configs, joins)
        if not configs:
            return append
        try:
            steps = steps_of(fold, append.events, append.snapshot)
            if steps or joins is None:
                deliveries = self._announcer.deliveries(head, configs, steps) if steps else ()
            else:
                record = append.snapshot or fold.followed_by(append.events)
                deliveries = self.standing(head, joins, record)
        except Exception:  # a webhook must not keep its task from going on
            log.exception("task %s: its webhooks are not told what follows seq %d", head.id, fold.seq)
            return append
        return replace(append, deliveries=deliveries) if deliveries else append

    def beginning(self, head: TaskHead, events: Sequence[Event]) -> tuple[Delivery, ...]:
        """What is told of the events with which a task begins."""
        return self._announcer.deliveries(head, self.configs, steps_of(Fold(head), events, None))

    def standing(self, head: TaskHead, config: PushConfig, record: Record) -> tuple[Delivery, ...]:
        """What a webhook is told that was registered as the task stood so."""
        return self._announcer.deliveries(head, (config,), (Step(seq=record.seq, event=None, record=record),))

    def wake(self) -> None:
        """Deliveries were committed."""
        self._announcer.wake()


def joined(configs: Sequence[PushConfig], config: PushConfig) -> tuple[PushConfig, ...]:
    """The configurations with another one, in place of that of the same id."""
    if any(each.id == config.id for each in configs):
        return tuple(config if each.id == config.id else each for each in configs)
    return (*configs, config)


def steps_of(fold: Fold, events: Sequence[Event], after: Record | None) -> list[Step]:
    """What of `events` is told: each status, and each artifact that is whole; `fold` is the task before them.

    `after` is the task after all of them, if that is known: then it is not folded again.
    """
    found: list[tuple[int, tuple[str, ...]]] = []
    still_open = dict.fromkeys(fold.open_artifacts)
    for index, event in enumerate(events):
        match event:
            case ArtifactChunk(artifact, _, last_chunk):
                if not last_chunk:
                    still_open[artifact.artifact_id] = None
                    continue
                still_open.pop(artifact.artifact_id, None)
                found.append((index, (artifact.artifact_id,)))
            case StatusChanged(state) if state in TERMINAL:
                found.append((index, tuple(still_open)))
            case StatusChanged() | Submitted():
                found.append((index, ()))
    steps: list[Step] = []
    ahead: Fold | None = None
    added = 0
    for index, whole in found:
        if index == len(events) - 1 and after is not None:
            record = after
        else:
            ahead = ahead or fold.ahead()
            for seq, event in enumerate(events[added : index + 1], fold.seq + added + 1):
                ahead.add(seq, event)
            added = index + 1
            record = ahead.record()
        steps.append(Step(seq=fold.seq + index + 1, event=events[index], record=record, whole=whole))
    return steps
