"""The announcer: turns the steps of a task into webhook deliveries.

`render_step` is pure: from what was put off before and a step come the deliveries and what is put off after it.

Invariant: a step is rendered once for each dialect, when it happens. A delivery never changes afterwards. The bytes
written for a task stay linear in its size (invariant 8). Some bodies may be larger than their event: the whole task, or
an artifact that grows after it was whole. They are sent for each event only while they are small; after that they are
put off until the task's state changes. A body known to be put off is not rendered.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.api import PushForm, Told
from dragoman.dialects.push import ARTIFACT
from dragoman.engine.announcements import PutOff, WebhookStep
from dragoman.engine.files import Files, LinksAt
from dragoman.model.errors import InvalidParams, Unavailable
from dragoman.model.events import ArtifactChunk, StatusChanged, Submitted
from dragoman.model.ids import new_id
from dragoman.model.lifecycle import SETTLED, SPELLED
from dragoman.model.message import Artifact
from dragoman.model.operations import PushConfig
from dragoman.model.task import TERMINAL, Record, TaskHead
from dragoman.net.address import Guard, Resolves, fault, parse_address
from dragoman.net.errors import AddressRefused, BadUrl, Unresolved
from dragoman.net.target import Target, target
from dragoman.push.caller import header_fault
from dragoman.store.outbox import Delivery, Registration

ALLOWING = '. The operator of this server can allow it: push_allowed_hosts = ["{host}"], or --push-allowed-hosts {host}'
"""Added to the error for an address that is refused."""

EACH_BYTES_MAX = 64 * 1024
"""The largest body that may be sent for each event although it contains more than the event. A task that is watched
step by step amounts to some kilobytes. An event costs at most a thousand such bodies."""

LONGER_S = 86_400
"""How much longer links in a body are valid than others: the body is sent unchanged until the last attempt."""


class WebhookAnnouncer:
    """See `engine.announcements.Announcer`. `forms` are the dialects' push formats by name; `wake` is the courier's.

    `unsent` returns why nothing is sent at present; then no webhook is registered.
    """

    def __init__(
        self,
        forms: Mapping[str, PushForm],
        guard: Guard,
        resolver: Resolves,
        wake: Callable[[], None],
        files: Files | None = None,
        unsent: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._forms = forms
        self._guard = guard
        self._resolver = resolver
        self.wake = wake
        self._files = files
        self._unsent = unsent

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """See `engine.announcements.Announcer.registration`. A configuration without an id gets one."""
        if (why := self._unsent()) is not None:
            raise Unavailable(f"webhooks cannot be registered now: {why}; send again soon")
        try:
            to = target(config.url)
            form = self._forms.get(config.dialect)
            if form is not None and form.https_only and to.scheme != "https" and not self._allowed(to):
                raise BadUrl(to.shown, "must be https, unless the operator allows its host")
            await self._guard.check(to, self._resolver)
        except (BadUrl, AddressRefused) as error:
            known = isinstance(error, AddressRefused) and not isinstance(error.__cause__, Unresolved)
            how = ALLOWING.format(host=urlsplit(config.url).hostname) if known else ""
            raise InvalidParams(field, f"this URL is not called: {error}{how}") from None
        if form is not None and (reason := header_fault(form, config)) is not None:
            raise InvalidParams(field.rpartition(".")[0], reason)
        return Registration(config=config if config.id else replace(config, id=new_id()), host=to.origin)

    def deliveries(
        self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[WebhookStep], put_off: PutOff
    ) -> tuple[tuple[Delivery, ...], PutOff]:
        """See `engine.announcements.Announcer.deliveries`."""
        links = None if self._files is None else self._files.links(LONGER_S)
        if links is not None:
            steps = [_link_files(step, links) for step in steps]
        deliveries: list[Delivery] = []
        for step in steps:
            rendered, put_off = render_step(head, step, put_off, configs, self._forms)
            deliveries += rendered
        return tuple(deliveries), put_off

    def possible_bodies(self, head: TaskHead, step: WebhookStep, dialect: str) -> Iterator[bytes]:
        """See `engine.announcements.Announcer.possible_bodies`. Files stay without links."""
        return StoredBodies(self._forms).possible_bodies(head, step, dialect)

    def _allowed(self, to: Target) -> bool:
        """Whether the operator has allowed the host by name, or by network if it is written as an address."""
        return self._guard.named(to.host) or (
            parse_address(to.host) is not None and fault(to.host) is not None and self._guard(to.host) is None
        )


def _link_files(step: WebhookStep, links: LinksAt) -> WebhookStep:
    """Replace large files in a step by links."""
    stands = cache(lambda: links.record(step.stands()))
    return replace(step, event=None if step.event is None else links.event(step.event), stands=stands)


class News(Struct, frozen=True):
    """One thing that a step reports. `name` is its name in a configuration's `events`.

    `late`: it was put off in an earlier step.
    """

    subject: Told
    name: str
    late: bool = False


def render_step(
    head: TaskHead, step: WebhookStep, put_off: PutOff, configs: Sequence[PushConfig], forms: Mapping[str, PushForm]
) -> tuple[list[Delivery], PutOff]:
    """Render the deliveries of a step to `configs`, in order. Also returns what is put off after it.

    `forms` are the dialects' push formats by name.
    """
    if put_off.artifacts and not step.again:
        put_off = replace(put_off, artifacts=put_off.artifacts.difference(step.whole))
    deliveries: list[Delivery] = []
    wholes: dict[str, bytes | None] = {}  # the whole task, by dialect
    served: set[str] = set()  # configurations that have got the whole task in this step
    news = news_of(step, put_off)
    for place, each in enumerate(news, 1):
        parts: dict[str, bytes | None] = {}  # the news alone, by dialect
        for config in configs:
            dialect = config.dialect
            form = forms.get(dialect)
            if form is None:
                continue
            wants = _wants(config, form, each, step)
            if not form.whole:
                if not wants:
                    continue
                if dialect not in parts:
                    parts[dialect], put_off = render_part(head, step, put_off, form, each)
                body, part = parts[dialect], place if place < len(news) else 0
            else:
                # Unwanted news count only if they bring artifacts that were put off.
                brings = step.changes and ARTIFACT in config.events
                if each.late or config.id in served or not (wants or brings):
                    continue
                if dialect not in wholes:
                    wholes[dialect], put_off = render_whole(head, step, put_off, dialect, form, each)
                body, part = wholes[dialect], 0
                if body is not None and not wants and not (len(body) > EACH_BYTES_MAX and step.stands().artifacts):
                    body = None
                if body is not None:
                    served.add(config.id)
            if body is not None:
                kept = step.state in TERMINAL or (isinstance(each.subject, Artifact) and not form.whole)
                deliveries.append(_delivery(head, step, config, body, part, kept=kept))
    if (put_off.artifacts or put_off.doubtful) and _settles(step):
        put_off = replace(put_off, artifacts=frozenset(), doubtful=frozenset())
    return deliveries, put_off


def news_of(step: WebhookStep, put_off: PutOff) -> list[News]:
    """Return what a step reports. Artifacts come before the status that closed them: nothing follows a terminal state.

    A step that settles the task also reports the artifacts that were put off.
    """
    news: list[News] = []
    event = step.event
    if (put_off.artifacts or put_off.doubtful) and _settles(step):
        waiting = sorted((put_off.artifacts | put_off.doubtful).difference(step.whole))
        news += [News(_artifact(step.stands(), artifact_id), ARTIFACT, late=True) for artifact_id in waiting]
    if isinstance(event, ArtifactChunk) and event.last_chunk and not event.append:
        news.append(News(event.artifact, ARTIFACT))  # the chunk is the whole artifact: no fold
    elif step.whole:
        news += [News(_artifact(step.stands(), artifact_id), ARTIFACT) for artifact_id in step.whole]
    if event is None or isinstance(event, StatusChanged | Submitted):  # else the caller's own message, or a chunk
        news.append(News(event, SPELLED[step.state]))
    return news


def render_part(
    head: TaskHead, step: WebhookStep, put_off: PutOff, form: PushForm, news: News
) -> tuple[bytes | None, PutOff]:
    """Render news in a dialect that sends only the news. None: they are not sent now.

    An artifact that has grown after it was whole is put off once it is large.
    """
    artifact = news.subject if isinstance(news.subject, Artifact) else None
    grown = artifact is not None and step.again
    if artifact is not None and grown and artifact.artifact_id in put_off.artifacts:
        return None, put_off
    body = form.encode(head, news.subject, step.stands)
    small = body is not None and len(body) <= EACH_BYTES_MAX
    if artifact is not None and grown and not small:
        return None, replace(put_off, artifacts=put_off.artifacts | {artifact.artifact_id})
    if artifact is not None and news.late and small and artifact.artifact_id not in put_off.artifacts:
        return None, put_off  # it was sent when it was whole
    return body, put_off


def render_whole(
    head: TaskHead, step: WebhookStep, put_off: PutOff, dialect: str, form: PushForm, news: News
) -> tuple[bytes | None, PutOff]:
    """Render the whole task. None: it is not sent now, because it is large and its state has not changed."""
    if dialect in put_off.dialects and not step.changes:
        return None, put_off
    body = form.encode(head, news.subject, step.stands)
    if body is None or len(body) <= EACH_BYTES_MAX:
        return body, replace(put_off, dialects=put_off.dialects - {dialect}) if put_off.dialects else put_off
    return body if step.changes else None, replace(put_off, dialects=put_off.dialects | {dialect})


class StoredBodies:
    """Renders bodies again, beside the server that sends them."""

    def __init__(self, forms: Mapping[str, PushForm]) -> None:
        self._forms = forms

    def possible_bodies(self, head: TaskHead, step: WebhookStep, dialect: str) -> Iterator[bytes]:
        """Render all that a step may report in a dialect, whatever was put off before it. Files stay without links."""
        form = self._forms.get(dialect)
        if form is None:
            return
        waiting = frozenset(artifact.artifact_id for artifact in step.stands().artifacts)
        for news in news_of(step, PutOff(artifacts=waiting)):
            body = form.encode(head, news.subject, step.stands)
            if body is not None:
                yield body

    def wake(self) -> None:
        """Do nothing: the server that sends looks by itself."""


def _settles(step: WebhookStep) -> bool:
    """Whether the task ends with a step, or waits for its caller."""
    return step.event is not None and step.changes and step.state in SETTLED


def _delivery(head: TaskHead, step: WebhookStep, config: PushConfig, body: bytes, part: int, *, kept: bool) -> Delivery:
    """Make a delivery. `part`: its place among the step's news. `kept`: no later delivery repeats its content."""
    return Delivery(
        id=f"msg_{new_id()}",
        config_id=config.id,
        seq=step.seq,
        part=part,
        kept=kept,
        dialect=config.dialect,
        body=body,
        traceparent=head.traceparent,
    )


def _wants(config: PushConfig, form: PushForm, news: News, step: WebhookStep) -> bool:
    """Whether a configuration wants the news: the events that it lists, or by default those of its dialect."""
    return news.name in config.events if config.events else form.told(news.subject, step.stands)


def _artifact(record: Record, artifact_id: str) -> Artifact:
    return next(artifact for artifact in record.artifacts if artifact.artifact_id == artifact_id)
