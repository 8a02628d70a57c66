"""The announcer: from what happens to a task to the webhook calls that are owed for it (DESIGN §7).

Invariant: what is told is rendered once for each dialect, when it happens: a delivery never changes after.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from dragoman.dialects.api import PushForm, Told
from dragoman.dialects.push_fields import ARTIFACT
from dragoman.engine.api import Step
from dragoman.engine.lifecycle import SPELLED
from dragoman.model.errors import InvalidParams
from dragoman.model.events import StatusChanged, Submitted
from dragoman.model.ids import new_id
from dragoman.model.message import Artifact
from dragoman.model.operations import PushConfig
from dragoman.model.task import Record, TaskHead
from dragoman.net.address import Guard, Resolves, fault, parsed
from dragoman.net.errors import AddressRefused, BadUrl
from dragoman.net.target import Target, target
from dragoman.push import headers
from dragoman.store.outbox import Delivery, Registration

HTTPS_ONLY = frozenset({"evoai"})
"""Dialects whose webhooks must be https, as Evo AI's are; a host that the operator allows may do without."""


class Announcer:
    """See `engine.api.Announcer`. `forms` are the dialects' ways of telling, by name; `wake` is the courier's."""

    def __init__(
        self, forms: Mapping[str, PushForm], guard: Guard, resolver: Resolves, wake: Callable[[], None]
    ) -> None:
        self._forms = forms
        self._guard = guard
        self._resolver = resolver
        self.wake = wake

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """See `engine.api.Announcer.registration`. Where it has no id, it gets one."""
        try:
            to = target(config.url)
            if config.dialect in HTTPS_ONLY and to.scheme != "https" and not self._allowed(to):
                raise BadUrl(to.shown, "must be https, unless the operator allows its host")
            await self._guard.check(to, self._resolver)
        except (BadUrl, AddressRefused) as error:
            raise InvalidParams(field, f"this URL is not called: {error}") from None
        form = self._forms.get(config.dialect)
        if form is not None and (reason := headers.fault(form, config)) is not None:
            raise InvalidParams(field.rpartition(".")[0], reason)
        return Registration(config=config if config.id else replace(config, id=new_id()), host=to.origin)

    def deliveries(self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[Step]) -> tuple[Delivery, ...]:
        """See `engine.api.Announcer.deliveries`."""
        owed: list[Delivery] = []
        for step in steps:
            said: set[tuple[str, bytes]] = set()  # where a body is the whole task, its end says all that is in it
            for told, name in _told(step):
                bodies: dict[str, bytes | None] = {}
                for config in configs:
                    dialect = config.dialect
                    form = self._forms.get(dialect)
                    if form is None or not _wants(config, form, told, name, step.record):
                        continue
                    if dialect not in bodies:
                        bodies[dialect] = form.encode(head, told, step.record)
                    body = bodies[dialect]
                    if body is not None and (config.id, body) not in said:
                        said.add((config.id, body))
                        owed.append(_delivery(head, config, step, body))
        return tuple(owed)

    def _allowed(self, to: Target) -> bool:
        """Whether the operator has allowed the host by its name, or, of one written as an address, by its network."""
        return self._guard.named(to.host) or (
            parsed(to.host) is not None and fault(to.host) is not None and self._guard(to.host) is None
        )


def _wants(config: PushConfig, form: PushForm, told: Told, name: str, record: Record) -> bool:
    """Whether a configuration is told that: what it asked for, or, if it did not say, what its dialect tells."""
    return name in config.events if config.events else form.told(told, record)


def _delivery(head: TaskHead, config: PushConfig, step: Step, body: bytes) -> Delivery:
    return Delivery(
        id=f"msg_{new_id()}",
        config_id=config.id,
        seq=step.seq,
        terminal=step.record.terminal,
        body=body,
        traceparent=head.traceparent,
    )


def _told(step: Step) -> Iterator[tuple[Told, str]]:
    """What webhooks are told of a step, each with its name among a configuration's `events`.

    Artifacts come before the status that closed them, so that nothing follows a terminal state.
    """
    for artifact_id in step.whole:
        yield _artifact(step.record, artifact_id), ARTIFACT
    match step.event:
        case None:
            yield None, SPELLED[step.record.state]
        case Submitted() | StatusChanged() as event:
            yield event, SPELLED[step.record.state]
        case _:
            pass  # a message of the caller's own, or a chunk


def _artifact(record: Record, artifact_id: str) -> Artifact:
    return next(artifact for artifact in record.artifacts if artifact.artifact_id == artifact_id)
