"""Telling: what webhooks are told of one step of a task, rendered once for each dialect.

Invariant: what is written of a task stays linear (invariant 8). A body that may be larger than the event it tells of,
as it is all of the task, or an artifact that goes on after it was whole, is told each time only while it is small;
then a change of the task's state tells it. What is known to be put off is not rendered.
"""

from collections.abc import Mapping, Sequence

from dragoman.dialects.api import PushForm, Told
from dragoman.dialects.push_fields import ARTIFACT
from dragoman.engine.announcements import PutOff, Step
from dragoman.model.events import ArtifactChunk, StatusChanged, Submitted
from dragoman.model.ids import new_id
from dragoman.model.lifecycle import SETTLED, SPELLED
from dragoman.model.message import Artifact
from dragoman.model.operations import PushConfig
from dragoman.model.task import TERMINAL, Record, TaskHead
from dragoman.store.outbox import Delivery

EACH_BYTES_MAX = 64 * 1024
"""So large may a body be that tells more than its event, and each event still have one: some kilobytes are what a task
amounts to that is watched step by step, and a thousand of these are what an event may cost at most."""


class Telling:
    """One step, and what of the task is put off."""

    __slots__ = ("_given", "_head", "_put_off", "_settles", "_step", "_wholes")

    def __init__(self, head: TaskHead, step: Step, put_off: PutOff) -> None:
        self._head = head
        self._step = step
        self._put_off = put_off
        self._settles = step.event is not None and step.changes and step.state in SETTLED
        self._wholes: dict[str, bytes | None] = {}
        self._given: set[str] = set()

    def deliveries(self, configs: Sequence[PushConfig], forms: Mapping[str, PushForm]) -> list[Delivery]:
        """What is told to which of `configs`; `forms` are the dialects' ways of telling, by name."""
        deliveries: list[Delivery] = []
        news = self._news()
        for place, (told, name, late) in enumerate(news, 1):
            part = place if place < len(news) else 0
            bodies: dict[str, bytes | None] = {}
            for config in configs:
                dialect = config.dialect
                form = forms.get(dialect)
                if form is None:
                    continue
                if form.whole:
                    body = None if late else self._whole(config, form, told, name)
                elif not _wants(config, form, told, name, self._step):
                    continue
                else:
                    if dialect not in bodies:
                        bodies[dialect] = self._part(form, told, late=late)
                    body = bodies[dialect]
                if body is not None:
                    alone = isinstance(told, Artifact) and not form.whole
                    deliveries.append(self._delivery(config, body, 0 if form.whole else part, alone=alone))
        if self._settles:
            self._put_off.artifacts.clear()
            self._put_off.doubtful.clear()
        return deliveries

    def _news(self) -> list[tuple[Told, str, bool]]:
        """What webhooks may be told, each with its name among a configuration's `events`, and whether it comes late.

        Artifacts come before the status that closed them, so that nothing follows a terminal state.
        """
        step, put_off = self._step, self._put_off
        news: list[tuple[Told, str, bool]] = []
        if not step.again:
            put_off.artifacts.difference_update(step.whole)
        if self._settles:
            waiting = sorted((put_off.artifacts | put_off.doubtful).difference(step.whole))
            news += [(_artifact(step.stands(), artifact_id), ARTIFACT, True) for artifact_id in waiting]
        match step.event:
            case ArtifactChunk(artifact, append=False, last_chunk=True):  # that is all of it: nothing is to be folded
                news.append((artifact, ARTIFACT, False))
            case _:
                news += [(_artifact(step.stands(), artifact_id), ARTIFACT, False) for artifact_id in step.whole]
        match step.event:
            case None:
                news.append((None, SPELLED[step.state], False))
            case Submitted() | StatusChanged() as event:
                news.append((event, SPELLED[step.state], False))
            case _:
                pass  # a message of the caller's own, or a chunk
        return news

    def _part(self, form: PushForm, told: Told, *, late: bool) -> bytes | None:
        """What is told in a dialect whose bodies are no larger than what they tell of; None: nothing."""
        waiting = self._put_off.artifacts
        again = told.artifact_id if self._step.again and isinstance(told, Artifact) else None
        if again in waiting:
            return None
        body = form.encode(self._head, told, self._step.stands)
        small = body is not None and len(body) <= EACH_BYTES_MAX
        if again is not None and not small:
            waiting.add(again)
            return None
        if late and small and isinstance(told, Artifact) and told.artifact_id not in waiting:
            return None  # it was told when it was whole
        return body

    def _whole(self, config: PushConfig, form: PushForm, told: Told, name: str) -> bytes | None:
        """All of the task, if a configuration is to be told it, and has not been in this step; None: it is not."""
        step = self._step
        if config.id in self._given:
            return None
        wants = _wants(config, form, told, name, step)
        if not wants and not (step.changes and ARTIFACT in config.events):
            return None
        if config.dialect not in self._wholes:
            self._wholes[config.dialect] = self._all(config.dialect, form, told)
        body = self._wholes[config.dialect]
        if body is None or not (wants or (len(body) > EACH_BYTES_MAX and step.stands().artifacts)):
            return None  # the second: artifacts that it asked for were put off
        self._given.add(config.id)
        return body

    def _all(self, dialect: str, form: PushForm, told: Told) -> bytes | None:
        large, changes = self._put_off.dialects, self._step.changes
        if dialect in large and not changes:
            return None
        body = form.encode(self._head, told, self._step.stands)
        if body is None or len(body) <= EACH_BYTES_MAX:
            large.discard(dialect)
            return body
        large.add(dialect)
        return body if changes else None

    def _delivery(self, config: PushConfig, body: bytes, part: int, *, alone: bool) -> Delivery:
        """`part`: its place among what is told of the step. `alone`: nothing that follows tells this again."""
        return Delivery(
            id=f"msg_{new_id()}",
            config_id=config.id,
            seq=self._step.seq,
            part=part,
            kept=alone or self._step.state in TERMINAL,
            dialect=config.dialect,
            body=body,
            traceparent=self._head.traceparent,
        )


def _wants(config: PushConfig, form: PushForm, told: Told, name: str, step: Step) -> bool:
    """Whether a configuration is told that: what it asked for, or, if it did not say, what its dialect tells."""
    return name in config.events if config.events else form.told(told, step.stands)


def _artifact(record: Record, artifact_id: str) -> Artifact:
    return next(artifact for artifact in record.artifacts if artifact.artifact_id == artifact_id)
