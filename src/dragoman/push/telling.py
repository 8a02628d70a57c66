"""Telling: the deliveries for one step of a task, rendered once for each dialect.

Invariant: the bytes written for a task stay linear in its size (invariant 8). Some bodies may be larger than their
event: the whole task, or an artifact that grows after it was whole. They are sent for each event only while they are
small; after that they are put off until the task's state changes. A body known to be put off is not rendered.
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
"""The largest body that may be sent for each event although it contains more than the event. A task that is watched
step by step amounts to some kilobytes. An event costs at most a thousand such bodies."""


class Telling:
    """One step of a task, and what was put off in earlier steps."""

    __slots__ = ("_given", "_head", "_put_off", "_settles", "_step", "_wholes")

    def __init__(self, head: TaskHead, step: Step, put_off: PutOff) -> None:
        self._head = head
        self._step = step
        self._put_off = put_off
        self._settles = step.event is not None and step.changes and step.state in SETTLED
        self._wholes: dict[str, bytes | None] = {}
        self._given: set[str] = set()

    def deliveries(self, configs: Sequence[PushConfig], forms: Mapping[str, PushForm]) -> list[Delivery]:
        """Make the deliveries to `configs`. `forms` are the dialects' push formats by name."""
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
                    body = None if late else self._render_whole(config, form, told, name)
                elif not _wants(config, form, told, name, self._step):
                    continue
                else:
                    if dialect not in bodies:
                        bodies[dialect] = self._render_part(form, told, late=late)
                    body = bodies[dialect]
                if body is not None:
                    alone = isinstance(told, Artifact) and not form.whole
                    deliveries.append(self._delivery(config, body, 0 if form.whole else part, alone=alone))
        if self._settles:
            self._put_off.artifacts.clear()
            self._put_off.doubtful.clear()
        return deliveries

    def _news(self) -> list[tuple[Told, str, bool]]:
        """The news of the step, each with its name in a configuration's `events`, and whether it was put off before.

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
            case ArtifactChunk(artifact, append=False, last_chunk=True):  # the chunk is the whole artifact: no fold
                news.append((artifact, ARTIFACT, False))
            case _:
                news += [(_artifact(step.stands(), artifact_id), ARTIFACT, False) for artifact_id in step.whole]
        match step.event:
            case None:
                news.append((None, SPELLED[step.state], False))
            case Submitted() | StatusChanged() as event:
                news.append((event, SPELLED[step.state], False))
            case _:
                pass  # the caller's own message, or a chunk
        return news

    def _render_part(self, form: PushForm, told: Told, *, late: bool) -> bytes | None:
        """The body in a dialect that renders only the news, not the whole task; None: nothing is sent now."""
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
            return None  # it was sent when it was whole
        return body

    def _render_whole(self, config: PushConfig, form: PushForm, told: Told, name: str) -> bytes | None:
        """The body with the whole task, if a configuration wants it and has not got it in this step; else None."""
        step = self._step
        if config.id in self._given:
            return None
        wants = _wants(config, form, told, name, step)
        if not wants and not (step.changes and ARTIFACT in config.events):
            return None
        if config.dialect not in self._wholes:
            self._wholes[config.dialect] = self._render_task(config.dialect, form, told)
        body = self._wholes[config.dialect]
        if body is None or not (wants or (len(body) > EACH_BYTES_MAX and step.stands().artifacts)):
            return None  # unwanted news count only if they bring artifacts that were put off
        self._given.add(config.id)
        return body

    def _render_task(self, dialect: str, form: PushForm, told: Told) -> bytes | None:
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
        """Make a delivery. `part`: its place among the step's news. `alone`: no later delivery repeats its content."""
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
    """Whether a configuration wants the news: the events that it lists, or by default those of its dialect."""
    return name in config.events if config.events else form.told(told, step.stands)


def _artifact(record: Record, artifact_id: str) -> Artifact:
    return next(artifact for artifact in record.artifacts if artifact.artifact_id == artifact_id)
