"""Exports all data of a principal as files that a person can read, a page of their pieces at a time.

    README.txt  principal.json
    tasks/ID/task.json  webhooks.json  log.jsonl  files/…     for each task, the one that changed first comes first
    memory/AGENT/…            what the agent keeps beside tasks: memory, checkpoints, sessions
    usage.jsonl  keys.jsonl  audit.jsonl

Invariant: it only reads, and holds a page and one task in memory, however much there is. A page is found by its cursor
alone, so that any server on the store gives the next one. A task that changes meanwhile comes again behind the others,
so none is missed.
"""

import asyncio
import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from dragoman import __version__
from dragoman.admin.principals import ExportPage, ExportPiece, ExportQuery
from dragoman.dialects.v1.encode import encode_snapshot
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.folded_places import FoldedPlaces
from dragoman.engine.admin.playback import log_event
from dragoman.engine.admin.principal_deletion import held_data, hint
from dragoman.engine.admin.usage_report import day_text
from dragoman.model.errors import InvalidParams, TaskNotFound
from dragoman.model.events import Logged
from dragoman.model.ids import timestamp
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Part
from dragoman.model.parts import Swaps, every_part, everywhere, swap_event, swap_record
from dragoman.model.task import Record
from dragoman.net.target import shown_url
from dragoman.store.api import ListOrder, ListQuery, Store, Stored
from dragoman.store.audit import AuditFilter
from dragoman.store.blobs.api import BlobAddress, BlobMissing, BlobStore
from dragoman.store.state import StateEntry

PAGE_BYTES = 1 << 20
"""About how many bytes a page has. A piece is as large as the event or the task that it shows."""

PIECE_BYTES = 1 << 18
"""Most bytes of a file in one piece."""

TASKS_LISTED = 50
"""Tasks that are listed at once, and entries of the audit trail times ten."""

ENTRIES_LISTED = 10
"""Entries of state that are read at once: each is in memory, and may be large."""

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
"""Characters that no name of a file in an export has."""

FORMAT = 1
"""Grows when a reader of exports would have to change."""

README = """\
This archive has the data that a Dragoman server keeps of one principal: see principal.json.

tasks/ID/task.json       the task: facts about it, and the task itself as in A2A 1.0, with its messages and artifacts.
                         Files in it are named by "url", relative to its folder
tasks/ID/log.jsonl       what happened to it, one event a line
tasks/ID/files/          the files that were sent or made
tasks/ID/webhooks.json   the addresses that are told of it, without their secrets, and the calls to them
memory/AGENT/            what an agent keeps beside its tasks: KIND.jsonl for all conversations of the principal, and
                         CONTEXT/KIND.jsonl for one. A line has a key and its value, as JSON or else in base64
usage.jsonl              what was used, by day, agent and model
keys.jsonl               the keys, without their secrets
audit.jsonl              what the principal did, or tried to do, and from where

A file that is not there has nothing in it.
"""


_NOBODY = Operator("")


class ExportPlace(Struct, frozen=True, array_like=True):
    """Where a page begins. In `tasks` that is a task after the one of `before` (the time of its status, and its id).

    `task` is one that has begun: its record is told. Then come the record's files and, with `log`, the events after
    `seq`, each behind its files: of the files, those before `part` are told, and the first `offset` bytes of that one.

    In `memory` it is after an entry's `key` in the scope of that agent, context and kind.
    """

    section: str = "begin"
    before: tuple[int, str] | None = None
    task: str = ""
    log: bool = False
    seq: int = 0
    part: int = 0
    offset: int = 0
    scope: tuple[str, str, str] = ("", "", "")
    key: str | None = None


class PagePieces:
    """The pieces of a page, and whether it has room for more."""

    def __init__(self) -> None:
        self.pieces: list[ExportPiece] = []
        self._left = PAGE_BYTES

    @property
    def full(self) -> bool:
        """Whether the next piece belongs on another page."""
        return self._left <= 0

    def add(self, path: str, text: str = "", *, raw: bytes = b"", last: bool = True) -> None:
        """Add a piece."""
        self.pieces.append(ExportPiece(path=path, text=text, raw=raw, last=last))
        self._left -= len(text) + len(raw) + len(path)

    def add_json(self, path: str, value: object) -> None:
        """Add a file of JSON that people can read."""
        self.add(path, _pretty(value))


class PrincipalExporter:
    """Reads the data of principals. `blobs` has the large files, if there is such a place."""

    def __init__(self, store: Store, blobs: BlobStore | None = None) -> None:
        self._store = store
        self._blobs = blobs
        self._places = FoldedPlaces(store)
        self._deliveries = DeliveryAdministration(store)

    async def page(self, asked: Asked[ExportQuery]) -> ExportPage:
        """The next page. Raises InvalidParams, also for a principal of whom there is nothing, or StoreError."""
        principal, found = asked.given.principal, PagePieces()
        place: ExportPlace | None = _read_cursor(asked.given.cursor)
        while place is not None and not found.full:
            match place.section:
                case "begin":
                    place = await self._begin(principal, found)
                case "tasks":
                    place = await self._tasks(principal, place, found)
                case "memory":
                    place = await self._memory(principal, place, found)
                case "accounts":
                    place = await self._accounts(principal, found)
                case "audit":
                    place = await self._audit(principal, place, found)
                case _:
                    raise _foreign_cursor()
        return ExportPage(pieces=tuple(found.pieces), next_cursor="" if place is None else _spell_cursor(place))

    async def _begin(self, principal: str, page: PagePieces) -> ExportPlace:
        held = await held_data(self._store, principal)
        if held.empty:
            raise InvalidParams("principal", hint(principal))
        page.add("README.txt", README)
        about = {
            "format": FORMAT,
            "principal": principal,
            "exported_at": timestamp(self._store.clock.now_ms()),
            "dragoman": __version__,
            "held": held,
        }
        page.add_json("principal.json", about)
        return ExportPlace("tasks")

    # -- tasks ---------------------------------------------------------------------------------------------------------

    async def _tasks(self, principal: str, place: ExportPlace, page: PagePieces) -> ExportPlace:
        """Tell of tasks until the page is full."""
        if place.task:
            begun = await self._store.load_snapshot(place.task)
            place = ExportPlace("tasks", place.before) if begun is None else await self._task(place, begun, (), page)
            if place.task:
                return place
        query = ListQuery(
            owner=principal,
            agent=None,
            order=ListOrder.OLDEST_CHANGED,
            limit=TASKS_LISTED,
            before=place.before,
            artifacts=True,
            max_bytes=PAGE_BYTES,
        )
        listed = await self._store.list(query)
        logs = await self._store.read_since([(stored.head.id, 0) for stored in listed.tasks], PAGE_BYTES)
        for stored in listed.tasks:
            if page.full:
                return place
            task_id = stored.head.id
            at = ExportPlace("tasks", (stored.status_ms, task_id), task_id)
            place = await self._task(at, stored, logs.get(task_id, ()), page)
            if place.task:
                return place
            await asyncio.sleep(0)  # many small tasks must not keep others waiting
        return place if listed.tasks and listed.more else ExportPlace("memory")

    async def _task(self, place: ExportPlace, stored: Stored, log: Sequence[Logged], page: PagePieces) -> ExportPlace:
        """Tell of a task until the page is full, or else to its end. `log` begins its log, as far as that is known."""
        done = ExportPlace("tasks", place.before)
        try:
            record = await self._record(stored)
        except TaskNotFound:
            return done  # it has been deleted meanwhile
        folder = f"tasks/{_path_word(place.task)}/"
        names = _FileNames(place.task)
        parts = names.files(every_part((), record))
        if not (place.log or place.part or place.offset):
            page.add(f"{folder}task.json", _spell_task(record, names.swaps))
            if stored.pushed:
                await self._webhooks(folder, record, page)
        if not place.log:
            for number in range(place.part, len(parts)):
                offset = place.offset if number == place.part else 0
                if (offset := await self._file(folder, names, parts[number], offset, page)) or page.full:
                    return replace(place, part=number if offset else number + 1, offset=offset)
            place = ExportPlace("tasks", place.before, place.task, log=True)
        told = {names.name(part) for part in parts}
        return await self._log(folder, names, told, place, stored.seq, log, page) or done

    async def _record(self, stored: Stored) -> Record:
        """The task as it stands, of what the store gave with it if that is all. Raises TaskNotFound."""
        if not stored.unreadable:
            fold = Fold(stored.head, stored.snapshot)
            for logged in stored.events:
                fold.add(logged.seq, logged.event)
            if fold.seq == stored.seq:
                return fold.record()
        return await self._places.stand(stored)

    async def _log(
        self,
        folder: str,
        names: "_FileNames",
        told: set[str],
        place: ExportPlace,
        end: int,
        known: Sequence[Logged],
        page: PagePieces,
    ) -> ExportPlace | None:
        """Tell of the events after `place.seq` up to seq `end`, the `known` ones first, and of their files that are not
        `told`. Returns None at the end."""
        path = f"{folder}log.jsonl"
        while place.seq < end:
            events = known or await self._store.read(place.task, place.seq, PIECE_BYTES)
            known = ()
            if not events:
                break  # they have been deleted
            for logged in events:
                parts = names.files(every_part((logged.event,)))
                for number in range(place.part, len(parts)):
                    if (name := names.name(parts[number])) not in told:
                        offset = place.offset if number == place.part else 0
                        if offset := await self._file(folder, names, parts[number], offset, page):
                            return replace(place, part=number, offset=offset)
                        told.add(name)
                event = log_event(Logged(logged.seq, swap_event(logged.event, names.swaps)))
                page.add(path, msgspec.json.encode(event).decode() + "\n", last=False)
                place = replace(place, seq=logged.seq, part=0, offset=0)
                if page.full:
                    return place
        page.add(path)
        return None

    async def _webhooks(self, folder: str, record: Record, page: PagePieces) -> None:
        configs = await self._store.outbox.configs(record.head.id)
        calls = (await self._deliveries.of_task(Asked(_NOBODY, None, record.head.id))).deliveries
        if not (configs or calls):
            return
        shown = [
            {"id": each.id, "url": shown_url(each.url), "events": each.events, "dialect": each.dialect}
            for each in configs
        ]
        page.add_json(f"{folder}webhooks.json", {"webhooks": shown, "calls": calls})

    async def _file(self, folder: str, names: "_FileNames", part: Part, offset: int, page: PagePieces) -> int:
        """Tell of a file from `offset` on. Returns how far the page goes; 0 if that is the end."""
        path = folder + names.name(part)
        try:
            async for piece, size in self._pieces(part, offset):
                offset += len(piece)
                page.add(path, raw=piece, last=offset >= size)
                if offset < size and page.full:
                    return offset
        except BlobMissing:
            page.add(f"{path}.missing", "These bytes are not in the store of large files any more.\n")
        return 0

    async def _pieces(self, part: Part, start: int) -> AsyncIterator[tuple[bytes, int]]:
        """The pieces of a file, each with the size of the whole. Raises BlobMissing or StoreError."""
        if part.raw is not None:
            size = len(part.raw)
            for begin in range(start, size, PIECE_BYTES) if size else (0,):
                yield part.raw[begin : begin + PIECE_BYTES], size
            return
        address = None if part.file is None else BlobAddress.read(part.file)
        if address is None or self._blobs is None:
            raise BlobMissing(f"there is no file {part.file}")
        size = await self._blobs.size(address)
        async for piece in self._blobs.pieces(address, start, size):
            yield piece, size

    # -- what is not a task's ------------------------------------------------------------------------------------------

    async def _memory(self, principal: str, place: ExportPlace, page: PagePieces) -> ExportPlace:
        """Tell of the entries of agents' state until the page is full, one scope after the other."""
        scopes = {
            (each.agent, each.context, each.kind): each for each in await self._store.state.list_scopes(principal)
        }
        for name in sorted(name for name in scopes if name >= place.scope):
            agent, context, kind = map(_path_word, name)
            path = f"memory/{agent}/{context}{'/' if context else ''}{kind}.jsonl"
            after = place.key if name == place.scope else None
            while entries := await self._store.state.list_entries(scopes[name], limit=ENTRIES_LISTED, after=after):
                for entry in entries:
                    page.add(path, _spell_entry(entry), last=False)
                after = entries[-1].key
                if page.full:
                    return ExportPlace("memory", scope=name, key=after)
            page.add(path)
        return ExportPlace("accounts")

    async def _accounts(self, principal: str, page: PagePieces) -> ExportPlace:
        """Tell of usage and keys."""
        for day in await self._store.principals.usage(principal):
            values = {name: value for name, value in asdict(day).items() if name != "owner"}
            page.add("usage.jsonl", _line(values | {"day": day_text(day.day)}), last=False)
        page.add("usage.jsonl")
        for key in await self._store.keys.all():
            if key.owner == principal:
                shown: dict[str, Any] = {field: value for field, value in asdict(key).items() if field not in _HIDDEN}
                times = {f"{word}": _time(getattr(key, f"{word}_ms")) for word in ("made", "expires", "revoked")}
                page.add("keys.jsonl", _line(shown | times), last=False)
        page.add("keys.jsonl")
        return ExportPlace("audit")

    async def _audit(self, principal: str, place: ExportPlace, page: PagePieces) -> ExportPlace | None:
        """Tell of entries of the audit trail after the one of the number `place.seq`."""
        wanted = AuditFilter(principal=principal)
        found = await self._store.audit.page(wanted, TASKS_LISTED * 10, place.seq or None, forward=True)
        for entry in found.entries:
            values = {"at": timestamp(entry.at_ms)} | asdict(entry)
            del values["at_ms"]
            page.add("audit.jsonl", _line(values), last=False)
        if found.next_cursor is None:
            page.add("audit.jsonl")
            return None
        return ExportPlace("audit", seq=found.next_cursor)


class _FileNames:
    """The names of the files of a task in its folder: the digest of the bytes, and the name that they came with."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self.swaps: Swaps = everywhere(self._swap)
        """Put names in the place of bytes."""

    def files(self, parts: list[Part]) -> list[Part]:
        """Those of the parts that have bytes here, each name once."""
        return list({self.name(part): part for part in parts if part.raw is not None or part.file is not None}.values())

    def name(self, part: Part) -> str:
        """The name of a part that has bytes."""
        address = (part.file or "").rpartition("/")[2]
        digest = address if part.raw is None else BlobAddress.of(self._task_id, part.raw).digest
        called = UNSAFE.sub("_", part.filename or "").strip("._")[-80:]
        return f"files/{UNSAFE.sub('_', digest)}{'-' if called else ''}{called}"

    def _swap(self, part: Part) -> Part:
        if part.raw is None and part.file is None:
            return part
        return replace(part, raw=None, file=None, url=self.name(part))


def _spell_task(record: Record, swaps: Swaps) -> str:
    """The task as in A2A 1.0, with facts that it does not tell."""
    head = record.head
    facts = {name: value for name, value in asdict(head).items() if value and name not in ("id", "context_id", "owner")}
    task = msgspec.Raw(encode_snapshot(swap_record(record, swaps), None))
    return _pretty({"facts": facts} | msgspec.json.decode(task, type=dict[str, msgspec.Raw]))


def _path_word(word: str) -> str:
    """A word of somebody else as one name in a path: neither a folder above, nor hidden."""
    quoted = quote(word, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _line(values: Mapping[str, Any]) -> str:
    return msgspec.json.encode(values).decode() + "\n"


def _spell_entry(entry: StateEntry) -> str:
    """An entry of state, whose value is JSON, or bytes that only its writer knows."""
    line: dict[str, Any] = {"key": entry.key, "version": entry.version, "expires": _time(entry.expires_ms)}
    try:
        line["value"] = msgspec.json.decode(entry.value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        line["base64"] = b64encode(entry.value).decode()
    return _line(line)


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else timestamp(at_ms)


_HIDDEN = frozenset({"digest", "made_ms", "expires_ms", "revoked_ms"})


def _spell_cursor(place: ExportPlace) -> str:
    return urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_cursor(cursor: str) -> ExportPlace:
    """Where a page begins. Raises InvalidParams."""
    if not cursor:
        return ExportPlace()
    try:
        return msgspec.json.decode(urlsafe_b64decode(cursor), type=ExportPlace)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _foreign_cursor() from error


def _foreign_cursor() -> InvalidParams:
    return InvalidParams("cursor", "comes from another list: leave it out for the first page")
