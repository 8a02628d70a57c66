"""The credentials and extension headers of the calls to an upstream, and the masking of secrets that it repeats.

Invariant: a caller's credentials go with its own task's requests only. Everything that is sent is known to `masking`.
Masking is pure: a value without a secret comes back as the same object; one with a secret has `MASK` in its place.
"""

import base64
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import quote, quote_plus

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.client.credentials import Credentials
from dragoman.model.message import Artifact, Part
from dragoman.model.operations import CallerCredentials

SHOWN_MAX = 16
"""How many of our own tokens are remembered: an upstream may repeat one that has been replaced since."""

S = TypeVar("S", bound=Struct)

MASK = "***"

BYTES_MIN = 4
"""Shorter values occur in any text, and protect nothing."""

HEAD_MIN, HEAD_MAX = 8, 24
"""How long a prefix of a secret counts as the secret: errors show an answer's first bytes, and cut them anywhere."""


def secrets_in(headers: Mapping[str, str]) -> frozenset[str]:
    """The secrets in credential headers: each value without its scheme, and the pair that Basic encodes."""
    found: set[str] = set()
    for value in headers.values():
        scheme, _, rest = value.strip().partition(" ")
        found.add(rest.strip() or scheme)
        if scheme.lower() == "basic":
            found |= _passwords(rest)
    return frozenset(found)


class Masking:
    """Replaces `secrets` in texts, whether spelled plainly or as in URLs and JSON. `active`: there are any."""

    __slots__ = ("_spelled", "active")

    def __init__(self, secrets: Iterable[str]) -> None:
        spelled = {
            spelling
            for secret in secrets
            for spelling in (secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])
            if len(secret) >= BYTES_MIN
        }
        self._spelled = tuple(sorted(spelled, key=len, reverse=True))  # one may contain another
        self.active = bool(self._spelled)

    def text(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self._spelled:
            enough = _enough(secret)
            at = text.find(secret[:enough])
            while at >= 0:
                end = at + _common(text[at:], secret)
                text = f"{text[:at]}{MASK}{text[end:]}"
                at = text.find(secret[:enough], at + len(MASK))
        return text

    def after(self, before: str, text: str) -> str:
        """The text without the rest of a secret that began in `before`."""
        for secret in self._spelled:
            at = before.find(secret[0], max(0, len(before) - len(secret) + 1))
            while at >= 0:
                began = len(before) - at
                if before.endswith(secret[:began]):
                    more = _common(text, secret[began:])
                    if more and began + more >= _enough(secret):
                        return MASK + text[more:]
                at = before.find(secret[0], at + 1)
        return text

    def holds(self, text: str) -> bool:
        """Whether the text contains a secret."""
        return any(secret[: _enough(secret)] in text for secret in self._spelled)

    def any(self, value: Any) -> Any:
        """A JSON value without the secrets."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.any(name): self.any(each) for name, each in value.items()}
            case list() | tuple():
                return [self.any(each) for each in value]
        return value

    def parts(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Parts without the secrets."""
        if not self._spelled:
            return parts
        masked = [self._part(part) for part in parts]
        return parts if all(new is old for new, old in zip(masked, parts, strict=True)) else tuple(masked)

    def artifact(self, artifact: Artifact) -> Artifact:
        """An artifact without the secrets."""
        if not self._spelled:
            return artifact
        parts = self.parts(artifact.parts)
        if parts is not artifact.parts:
            artifact = replace(artifact, parts=tuple(parts))
        if artifact.name or artifact.description or artifact.metadata or artifact.extensions:
            bare = self._struct(replace(artifact, parts=()))
            artifact = replace(bare, parts=artifact.parts)
        return artifact

    def metadata(self, metadata: dict[str, Any] | None) -> dict[str, Any] | None:
        """Metadata without the secrets."""
        if not metadata or not self._spelled:
            return metadata
        masked: dict[str, Any] = self.any(metadata)
        return masked

    def _part(self, part: Part) -> Part:
        if part.text is not None and part.data is UNSET and part.metadata is None and part.filename is None:
            return replace(part, text=self.text(part.text)) if self.holds(part.text) else part
        if part.raw is None:
            return self._struct(part)
        raw, beside = part.raw, replace(part, raw=None)
        for secret in self._spelled:
            raw = raw.replace(secret.encode(), MASK.encode())
        masked = self._struct(beside)
        return part if raw == part.raw and masked is beside else replace(masked, raw=raw)

    def _struct(self, struct: S) -> S:
        said = msgspec.json.encode(struct)
        if not self.holds(said.decode()):
            return struct
        return msgspec.convert(self.any(msgspec.json.decode(said)), type(struct))


class CallerHeaders(Struct, frozen=True):
    """The headers that the caller of one task sent beside its message: its credentials, and the extensions it declared.

    `old`: the upstream has 0.3, which names the header of extensions otherwise (A2A 0.3 §3.2.2, 1.0 §3.2.6). `masking`
    removes what is sent for the task, if that is not our own.
    """

    shown: CallerCredentials | None
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


def _passwords(pair: str) -> set[str]:
    try:
        whole = base64.b64decode(pair.strip(), validate=True).decode()
    except ValueError:
        return set()
    return {whole, whole.partition(":")[2]}


def _common(text: str, secret: str) -> int:
    """The length of the common prefix."""
    alike = (one == other for one, other in zip(text, secret, strict=False))
    return next((index for index, same in enumerate(alike) if not same), min(len(text), len(secret)))


def _enough(secret: str) -> int:
    """The length of the prefix that gives a secret away."""
    return min(len(secret), HEAD_MAX, max(HEAD_MIN, len(secret) // 2))
