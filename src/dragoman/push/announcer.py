"""The announcer: turns the steps of a task into webhook deliveries (DESIGN §7).

Invariant: a step is rendered once for each dialect, when it happens. A delivery never changes afterwards.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from msgspec.structs import replace

from dragoman.dialects.api import PushForm
from dragoman.engine.announcements import PutOff, Step
from dragoman.engine.files import Files, LinksAt
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import new_id
from dragoman.model.operations import PushConfig
from dragoman.model.task import TaskHead
from dragoman.net.address import Guard, Resolves, fault, parsed
from dragoman.net.errors import AddressRefused, BadUrl, Unresolved
from dragoman.net.target import Target, target
from dragoman.push import headers
from dragoman.push.telling import Telling
from dragoman.store.outbox import Delivery, Registration

ALLOWING = ". The operator of this server can allow it: push_allowed_hosts, push_allowed_cidrs"
"""Added to the error for an address that is refused."""

LONGER_S = 86_400
"""How much longer links in a body are valid than others: the body is sent unchanged until the last attempt."""


class Announcer:
    """See `engine.announcer.Announcer`. `forms` are the dialects' push formats by name; `wake` is the courier's."""

    def __init__(
        self,
        forms: Mapping[str, PushForm],
        guard: Guard,
        resolver: Resolves,
        wake: Callable[[], None],
        files: Files | None = None,
    ) -> None:
        self._forms = forms
        self._guard = guard
        self._resolver = resolver
        self.wake = wake
        self._files = files

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """See `engine.announcer.Announcer.registration`. A configuration without an id gets one."""
        try:
            to = target(config.url)
            form = self._forms.get(config.dialect)
            if form is not None and form.https_only and to.scheme != "https" and not self._allowed(to):
                raise BadUrl(to.shown, "must be https, unless the operator allows its host")
            await self._guard.check(to, self._resolver)
        except (BadUrl, AddressRefused) as error:
            known = isinstance(error, AddressRefused) and not isinstance(error.__cause__, Unresolved)
            how = ALLOWING if known else ""
            raise InvalidParams(field, f"this URL is not called: {error}{how}") from None
        if form is not None and (reason := headers.fault(form, config)) is not None:
            raise InvalidParams(field.rpartition(".")[0], reason)
        return Registration(config=config if config.id else replace(config, id=new_id()), host=to.origin)

    def deliveries(
        self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[Step], put_off: PutOff
    ) -> tuple[Delivery, ...]:
        """See `engine.announcer.Announcer.deliveries`."""
        links = None if self._files is None else self._files.links(LONGER_S)
        if links is not None:
            steps = [_link_files(step, links) for step in steps]
        return tuple(
            delivery for step in steps for delivery in Telling(head, step, put_off).deliveries(configs, self._forms)
        )

    def _allowed(self, to: Target) -> bool:
        """Whether the operator has allowed the host by name, or by network if it is written as an address."""
        return self._guard.named(to.host) or (
            parsed(to.host) is not None and fault(to.host) is not None and self._guard(to.host) is None
        )


def _link_files(step: Step, links: LinksAt) -> Step:
    """Replace large files in a step by links."""
    stands = cache(lambda: links.record(step.stands()))
    return replace(step, event=None if step.event is None else links.event(step.event), stands=stands)
