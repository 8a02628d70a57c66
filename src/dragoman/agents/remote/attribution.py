"""Credentials and extension headers of the calls to an upstream: this server's own, and those of one task's caller.

Invariant: a caller's credentials go with its own task's requests only. Everything that is sent is known to `masking`.
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dragoman.agents.remote.secrets import Masking, secrets_in
from dragoman.client.credentials import Credentials
from dragoman.model.operations import Shown

SHOWN_MAX = 16
"""How many of our own tokens are remembered: an upstream may repeat one that has been replaced since."""


class Said(Struct, frozen=True):
    """The headers that the caller of one task sent beside its message: its credentials, and the extensions it declared.

    `old`: the upstream has 0.3, which names the header of extensions otherwise (A2A 0.3 §3.2.2, 1.0 §3.2.6). `masking`
    removes what is sent for the task, if that is not our own.
    """

    shown: Shown | None
    extensions: tuple[str, ...]
    old: bool
    masking: Masking | None = None

    @property
    def declared(self) -> dict[str, str]:
        """The header that declares the extensions."""
        name = "X-A2A-Extensions" if self.old else "A2A-Extensions"
        return {name: ", ".join(self.extensions)} if self.extensions else {}


@runtime_checkable
class Secretive(Protocol):
    """Credentials that know more secrets than they send."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not be told, beside those that are sent."""
        ...


class Saying:
    """Credentials that include the headers of one task's caller. The task's own run sets `caller`.

    With `forwards`, the caller's credentials are sent, else those of `own`.
    """

    def __init__(self, own: Credentials | None, *, forwards: bool) -> None:
        self.caller: ContextVar[Said | None] = ContextVar("caller", default=None)
        self._own = own
        self._forwards = forwards
        self._shown: OrderedDict[str, None] = OrderedDict()
        self._always = own.secrets if isinstance(own, Secretive) else ()
        self._masking = Masking(self._always)

    async def headers(self) -> Mapping[str, str]:
        """The headers for a request; outside of a run, none of them are a caller's."""
        said = self.caller.get()
        shown: Mapping[str, str] = {} if self._own is None else self._remember(await self._own.headers())
        if said is None:
            return shown
        if self._forwards and said.shown is not None:
            shown = said.shown.headers
        return {**said.declared, **shown}

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """Fresh headers of our own, in place of the refused ones; None with forwarded credentials."""
        if self._own is None or self._forwards:
            return None
        said = self.caller.get()
        declared = {} if said is None else said.declared
        others = await self._own.renewed({name: refused[name] for name in refused if name not in declared})
        return None if others is None else {**declared, **self._remember(others)}

    @property
    def masking(self) -> Masking:
        """Removes sent secrets from a text: our own and, within a task's run, its caller's."""
        said = self.caller.get()
        return self._masking if said is None or said.masking is None else said.masking

    def _remember(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        secrets = secrets_in(headers)
        if not secrets <= self._shown.keys():
            self._shown.update(dict.fromkeys(secrets))
            while len(self._shown) > SHOWN_MAX:
                self._shown.popitem(last=False)
            self._masking = Masking((*self._always, *self._shown))
        return headers
