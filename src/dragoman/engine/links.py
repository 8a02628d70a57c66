"""Links: the URLs under which callers get the bytes of large files. They are signed, and they expire.

Invariant: a link lets its bearer read the bytes it names until it expires, and nothing else. Place, name, media type
and expiry are signed, with a key that all servers on one store share. Each reading of a task makes fresh links.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.handler import Answered
from dragoman.model.errors import Forbidden, NotFound
from dragoman.model.events import ArtifactChunk, Delegated, Event, Noted
from dragoman.model.ids import Clock, timestamp
from dragoman.model.message import Message, Part
from dragoman.model.operations import TaskPage
from dragoman.model.parts import Swaps, every_parts, everywhere, swap_event, swap_message, swap_record
from dragoman.model.task import Record
from dragoman.store.blobs.api import Place

PATH = "/files/"
"""The path below which links are served."""

NAME_CHARACTERS = 200
"""Most characters of a file's name in its link; the part has the whole name."""

EXPIRES = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)

PURPOSE = b"dragoman file links 1"


class Expired(Forbidden):
    """A genuine link has expired."""


class Claim(Struct, frozen=True):
    """The content of a link: place, name and media type of the bytes, and the expiry in seconds since the epoch.

    `name` and `media_type` are as an agent or a caller wrote them; empty if they did not.
    """

    place: Place
    name: str
    media_type: str
    expires: int


class Links:
    """Makes links and reads them. All servers on one store have the same `secret`, and nobody else has it."""

    def __init__(self, secret: bytes, expire_s: int, clock: Clock) -> None:
        self._key = hmac.digest(secret, PURPOSE, "sha256")
        self._expire_s = expire_s
        self._clock = clock

    def at(self, base: str, longer_s: int = 0) -> "LinksAt":
        """Links below the base URL `base`, valid `longer_s` longer than usual."""
        return LinksAt(lambda part: self._linked(base, part, longer_s))

    def _linked(self, base: str, part: Part, longer_s: int) -> Part:
        place = None if part.file is None else Place.read(part.file)
        if place is None:
            return part
        expires = self._now_s() + self._expire_s + longer_s
        claim = Claim(place, (part.filename or "")[:NAME_CHARACTERS], part.media_type or "", expires)
        return replace(part, file=None, url=self._url(base, claim))

    def _url(self, base: str, claim: Claim) -> str:
        fields: dict[str, str | int] = {"name": claim.name} if claim.name else {}
        if claim.media_type:
            fields["type"] = claim.media_type
        query = urlencode({**fields, "expires": claim.expires, "signature": self._signature(claim)})
        return f"{base}{PATH}{claim.place}?{query}"

    def claim(self, task_id: str, digest: str, query: Mapping[str, str]) -> Claim:
        """Read the claim of a link. Raises NotFound if it is not a link, Forbidden if it is forged, or Expired."""
        place = Place.read(f"{task_id}/{digest}")
        if place is None:
            raise NotFound("no such file: take the URL as it stands in the task")
        signed, expires = query.get("signature", ""), query.get("expires", "")
        if not EXPIRES.fullmatch(expires):
            raise Forbidden("this URL is not signed: take it as it stands in the task, with its whole query")
        claim = Claim(place, query.get("name", ""), query.get("type", ""), int(expires))
        if not hmac.compare_digest(self._signature(claim).encode(), signed.encode()):
            raise Forbidden("the signature does not fit: take the URL as it stands in the task, with its whole query")
        if claim.expires <= self._now_s():
            when = timestamp(claim.expires * 1000)
            raise Expired(f"this URL expired at {when}: read the task again, its files have fresh URLs there")
        return claim

    def place(self, url: str) -> Place | None:
        """The place of the bytes that a URL leads to, whatever its host; None if it is not one of our links.

        Raises Expired.
        """
        try:
            parts = urlsplit(url)
            query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=10))
        except ValueError:
            return None
        _, found, spelled = parts.path.rpartition(PATH)
        if not found or "signature" not in query:
            return None
        task_id, _, digest = spelled.partition("/")
        try:
            return self.claim(task_id, digest, query).place
        except Expired:
            raise
        except (NotFound, Forbidden):
            return None

    def left_s(self, claim: Claim) -> int:
        """How many seconds the claim is still valid."""
        return max(0, claim.expires - self._now_s())

    def _signature(self, claim: Claim) -> str:
        fields = (str(claim.place), claim.name, claim.media_type, str(claim.expires))
        signed = b"".join(
            b"%d:%b," % (len(field), field) for field in (each.encode("utf-8", "replace") for each in fields)
        )
        return urlsafe_b64encode(hmac.digest(self._key, signed, "sha256")).rstrip(b"=").decode()

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000


class LinksAt:
    """Replaces files by links. A value without files comes back as the same object."""

    __slots__ = ("_swaps",)

    def __init__(self, linked: Callable[[Part], Part]) -> None:
        self._swaps: Swaps = everywhere(linked)

    def event(self, event: Event) -> Event:
        """An event for a caller to see."""
        return swap_event(event, self._swaps) if event_has_files(event) else event

    def record(self, record: Record) -> Record:
        """A task for a caller to see."""
        return swap_record(record, self._swaps) if record_has_files(record) else record

    def message(self, message: Message) -> Message:
        """A message for a caller to see."""
        return swap_message(message, self._swaps.history) or message

    def answer(self, answer: Answered) -> Answered:
        """The answer to a unary operation."""
        match answer:
            case Record():
                return self.record(answer)
            case TaskPage() if any(map(record_has_files, answer.records)):
                return replace(answer, records=tuple(map(self.record, answer.records)))
            case Message():
                return self.message(answer)
            case _:
                return answer


def event_has_files(event: Event) -> bool:
    """Whether any bytes of the event are in the blob store."""
    if isinstance(event, ArtifactChunk):
        return _any(event.artifact.parts)
    if isinstance(event, Noted):
        return False
    if isinstance(event, Delegated):
        return any(_any(parts) for parts in every_parts((event,), None))
    return event.message is not None and _any(event.message.parts)


def record_has_files(record: Record) -> bool:
    """Whether any bytes of the task are in the blob store."""
    return any(_any(parts) for parts in every_parts((), record))


def _any(parts: tuple[Part, ...]) -> bool:
    for part in parts:  # noqa: SIM110  a generator would triple the cost for each event of a stream
        if part.file is not None:
            return True
    return False


def same_parts(told: Sequence[Part], given: Sequence[Part]) -> bool:
    """Whether the parts `told` by `run.record` are the `given` ones. A link equals the bytes it leads to."""
    return len(told) == len(given) and all(
        one == other or _stands_for(one, other) for one, other in zip(told, given, strict=True)
    )


def _stands_for(link: Part, file: Part) -> bool:
    if link.url is None or file.raw is None or replace(link, url=None) != replace(file, raw=None):
        return False
    return urlsplit(link.url).path.endswith(f"/{Place.of('', file.raw).digest}")
