"""Who this server is to an upstream, and what the caller of one task said beside its message.

Invariant: what a caller showed goes with its own task's requests only; what is shown is known to `masking`.
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
"""Tokens of our own that are remembered: an upstream may repeat one that has been replaced meanwhile."""


class Said(Struct, frozen=True):
    """What the caller of one task said beside its message: who it is, and the extensions that it declared.

    `old`: the upstream has 0.3, where the header of the latter has another name (A2A 0.3 §3.2.2, 1.0 §3.2.6).
    `masking` takes out what is shown for the task, if that is not ours.
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
    """Credentials that know more secrets than they show."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be told, beside what is shown."""
        ...


class Saying:
    """Credentials that say what is said for one task, too: `caller` is to be set in the task's own run.

    With `forwards` they show what the caller showed, else what `own` has.
    """

    def __init__(self, own: Credentials | None, *, forwards: bool) -> None:
        self.caller: ContextVar[Said | None] = ContextVar("caller", default=None)
        self._own = own
        self._forwards = forwards
        self._shown: OrderedDict[str, None] = OrderedDict()
        self._always = own.secrets if isinstance(own, Secretive) else ()
        self._masking = Masking(self._always)

    async def headers(self) -> Mapping[str, str]:
        """What goes with a request; outside of a run nothing of a caller's."""
        said = self.caller.get()
        shown: Mapping[str, str] = {} if self._own is None else self._noted(await self._own.headers())
        if said is None:
            return shown
        if self._forwards and said.shown is not None:
            shown = said.shown.headers
        return {**said.declared, **shown}

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """Others of our own."""
        if self._own is None or self._forwards:
            return None
        said = self.caller.get()
        declared = {} if said is None else said.declared
        others = await self._own.renewed({name: refused[name] for name in refused if name not in declared})
        return None if others is None else {**declared, **self._noted(others)}

    @property
    def masking(self) -> Masking:
        """Takes out of a text what was shown: our own, and, in a task's own run, what its caller showed."""
        said = self.caller.get()
        return self._masking if said is None or said.masking is None else said.masking

    def _noted(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        secrets = secrets_in(headers)
        if not secrets <= self._shown.keys():
            self._shown.update(dict.fromkeys(secrets))
            while len(self._shown) > SHOWN_MAX:
                self._shown.popitem(last=False)
            self._masking = Masking((*self._always, *self._shown))
        return headers
