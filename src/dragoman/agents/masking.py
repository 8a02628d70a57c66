"""The masking of secrets in what another party says, such as an upstream that repeats what it was shown.

Invariant: pure. A value without a secret comes back as the same object; one with a secret has `MASK` in its place.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.model.message import Artifact, Part

S = TypeVar("S", bound=Struct)

MASK = "***"

BYTES_MIN = 4
"""Shorter values occur in any text, and protect nothing."""

HEAD_MIN, HEAD_MAX = 8, 24
"""How long a prefix of a secret counts as the secret: errors show an answer's first bytes, and cut them anywhere."""


def secrets_in(headers: Mapping[str, str]) -> frozenset[str]:
    """The secrets in credential headers: values without a scheme, the pair that Basic encodes, values of cookies."""
    found: set[str] = set()
    for name, value in headers.items():
        if name == "cookie":
            found |= {pair.partition("=")[2].strip() for pair in value.split(";")} - {""}
            continue
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
                rest = text[at:]
                end = max(_common(rest, other) for other in self._spelled)  # tokens of one issuer begin alike
                text = f"{text[:at]}{MASK}{rest[end:]}"
                at = text.find(secret[:enough], at + len(MASK))
        return text

    def after(self, before: str, text: str) -> str:
        """The text without the rest of a secret that began in `before`."""
        rest = 0
        for secret in self._spelled:
            at = before.find(secret[0], max(0, len(before) - len(secret) + 1))
            while at >= 0:
                began = len(before) - at
                if before.endswith(secret[:began]):
                    more = _common(text, secret[began:])
                    if began + more >= _enough(secret):
                        rest = max(rest, more)
                at = before.find(secret[0], at + 1)
        return MASK + text[rest:] if rest else text

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


NO_MASKING = Masking(())
"""Removes nothing."""


class TaskSecrets:
    """The secrets that are shown for one task: the caller's, and those that are issued for it. They only grow.

    `always` are secrets of this server that go along.
    """

    __slots__ = ("_known", "masking")

    def __init__(self, always: Iterable[str] = ()) -> None:
        self._known = frozenset(always)
        self.masking = Masking(self._known)
        """Removes all of them."""

    def add(self, secrets: Iterable[str]) -> None:
        """Add secrets, which are about to be shown."""
        more = self._known.union(secrets)
        if more != self._known:
            self._known = more
            self.masking = Masking(more)


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
