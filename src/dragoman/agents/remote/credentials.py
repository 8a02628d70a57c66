"""The credentials and extension headers of the calls to an upstream.

Invariant: a caller's credentials go with its own task's requests only. Everything that is sent is known to `masking`.
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dragoman.agents.masking import Masking, TaskSecrets, secrets_in
from dragoman.client.credentials import Credentials
from dragoman.model.headers import RequestHeaders

SHOWN_MAX = 16
"""How many of our own tokens are remembered: an upstream may repeat one that has been replaced since."""


class CallerHeaders(Struct, frozen=True):
    """The headers that the caller of one task sent beside its message: its credentials, the extensions it declared, and
    those that are `listed` for the upstream.

    `old`: the upstream has 0.3, which names the header of extensions otherwise (A2A 0.3 §3.2.2, 1.0 §3.2.6). `secrets`
    are those that are sent for the task, if they are not our own.
    """

    shown: RequestHeaders | None
    extensions: tuple[str, ...]
    old: bool
    secrets: TaskSecrets | None = None
    listed: Mapping[str, str] = {}

    @property
    def declared(self) -> dict[str, str]:
        """The headers without the credentials: those listed, and the one that declares the extensions."""
        name = "X-A2A-Extensions" if self.old else "A2A-Extensions"
        return {**self.listed, name: ", ".join(self.extensions)} if self.extensions else dict(self.listed)


@runtime_checkable
class Secretive(Protocol):
    """Credentials that know more secrets than they send."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not be told, beside those that are sent."""
        ...


class CallCredentials:
    """Credentials that include the headers of one task's caller. The task's own run sets `caller`.

    With `forwards`, the caller's credentials are sent, else those of `own`.
    """

    def __init__(self, own: Credentials | None, *, forwards: bool) -> None:
        self.caller: ContextVar[CallerHeaders | None] = ContextVar("caller", default=None)
        self._own = own
        self._forwards = forwards
        self._shown: OrderedDict[str, None] = OrderedDict()
        self._always = own.secrets if isinstance(own, Secretive) else ()
        self._masking = Masking(self._always)

    @property
    def absent(self) -> bool:
        """Whether nothing is sent: we have no credentials of our own, and nothing of a caller's goes along."""
        return self._own is None and self.caller.get() is None

    async def headers(self) -> Mapping[str, str]:
        """The headers for a request; outside of a run, none of them are a caller's."""
        said = self.caller.get()
        shown: Mapping[str, str] = {} if self._own is None else self._remember(await self._own.headers(), said)
        if said is None:
            return shown
        if self._forwards and said.shown is not None:
            shown = said.shown.headers
        return {**said.declared, **shown}

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """Fresh headers of our own, or for the caller, in place of refused ones; None with forwarded credentials."""
        if self._own is None or self._forwards:
            return None
        said = self.caller.get()
        declared = {} if said is None else said.declared
        others = await self._own.renewed({name: refused[name] for name in refused if name not in declared})
        return None if others is None else {**declared, **self._remember(others, said)}

    @property
    def masking(self) -> Masking:
        """Removes sent secrets from a text: our own and, within a task's run, its caller's."""
        said = self.caller.get()
        return self._masking if said is None or said.secrets is None else said.secrets.masking

    def _remember(self, headers: Mapping[str, str], said: CallerHeaders | None) -> Mapping[str, str]:
        """Remember what is sent: with the task that it was issued for, or with those of our own."""
        secrets = secrets_in(headers)
        if said is not None and said.secrets is not None:
            said.secrets.add(secrets)
        elif not secrets <= self._shown.keys():
            self._shown.update(dict.fromkeys(secrets))
            while len(self._shown) > SHOWN_MAX:
                self._shown.popitem(last=False)
            self._masking = Masking((*self._always, *self._shown))
        return headers
