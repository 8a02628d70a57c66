"""The audit trail on its way to the store: what is kept, when it is written, what happens while it cannot be."""

import asyncio
import json
import logging
from collections.abc import Sequence
from io import StringIO

import pytest
from msgspec.structs import replace

from dragoman.engine.handlers import audit as trails
from dragoman.engine.handlers.audit import BATCH_ENTRIES, ID_CHARACTERS, PENDING_MAX, Trail
from dragoman.store.api import StoreError, StoreFull
from dragoman.store.audit import AuditEntry
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.logs import JsonFormatter, TextFormatter

DEADLINE_S = 60.0


class Table:
    """Where the entries go; it can be full, and it can take its time."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []
        self.writes: list[int] = []
        self.full = False
        self.held: list[asyncio.Future[None]] | None = None
        self.written = asyncio.Event()
        self.done_beside: list[AuditEntry] = []
        self.looked: asyncio.Queue[int | None] = asyncio.Queue()

    def write(self, entries: Sequence[AuditEntry]) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writes.append(len(entries))
        self.written.set()
        if self.full:
            future.set_exception(StoreFull("the disk is full"))
            return future
        self.entries.extend(entries)
        if self.held is None:
            future.set_result(None)
        else:
            self.held.append(future)
        return future

    async def read(
        self, *, principal: str | None = None, refused_only: bool = False, since_ms: int = 0, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        raise NotImplementedError

    async def acts(self, after: int | None) -> tuple[int, tuple[AuditEntry, ...]]:
        self.looked.put_nowait(after)
        if self.full:
            raise StoreError("the disk does not answer")
        end = len(self.done_beside)
        return end, tuple(self.done_beside[end if after is None else after :])

    async def sweep(self, before_ms: int) -> int:
        raise NotImplementedError


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits of seconds take milliseconds."""
    monkeypatch.setattr(trails, "WRITE_EVERY_S", 0.01)
    monkeypatch.setattr(trails, "RETRY_S", 0.01)
    monkeypatch.setattr(trails, "HEAR_EVERY_S", 0.01)


def entry(number: int = 0, reason: str = "", **said: str) -> AuditEntry:
    fields = {"principal": "key:anna", "action": "GetTask", "agent": "echo", "task_id": f"t{number}"} | said
    return AuditEntry(at_ms=number, allowed=not reason, reason=reason, **fields)


def numbers(table: Table) -> list[int]:
    return [kept.at_ms for kept in table.entries]


async def until_written(table: Table, writes: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len(table.writes) < writes:
            table.written.clear()
            await table.written.wait()
        await asyncio.sleep(0)  # and the trail has heard of it


async def test_a_few_entries_are_written_together_after_a_while(table: Table) -> None:
    trail = Trail(table, "all")
    for number in range(3):
        trail.note(entry(number))
    assert table.writes == []
    await until_written(table, 1)
    trail.note(entry(3))
    await until_written(table, 2)
    assert table.writes == [3, 1]
    assert numbers(table) == [0, 1, 2, 3]


async def test_a_batch_is_written_at_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trails, "WRITE_EVERY_S", 3600.0)
    trail = Trail(table, "all")
    for number in range(BATCH_ENTRIES):
        trail.note(entry(number))
    assert table.writes == [BATCH_ENTRIES]


async def test_there_is_one_write_after_the_other_in_order(table: Table) -> None:
    table.held = []
    trail = Trail(table, "all")
    for number in range(3 * BATCH_ENTRIES + 1):
        trail.note(entry(number))
    assert table.writes == [BATCH_ENTRIES]
    for writes in (2, 3, 4):
        table.held[-1].set_result(None)
        await until_written(table, writes)
    table.held[-1].set_result(None)
    assert table.writes == [BATCH_ENTRIES] * 3 + [1]
    assert numbers(table) == list(range(3 * BATCH_ENTRIES + 1))


async def test_what_is_left_is_written_on_stop(table: Table) -> None:
    table.held = []
    trail = Trail(table, "all")
    for number in range(2 * BATCH_ENTRIES + 5):
        trail.note(entry(number))
    held, table.held = table.held, None
    asyncio.get_running_loop().call_soon(held[0].set_result, None)
    async with asyncio.timeout(DEADLINE_S):
        await trail.stop()
        await trail.stop()
    assert numbers(table) == list(range(2 * BATCH_ENTRIES + 5))


async def test_while_the_store_is_full_the_oldest_go_and_how_many_is_logged(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.full = True
    trail = Trail(table, "all")
    for number in range(PENDING_MAX + 7):
        trail.note(entry(number))
    writes = len(table.writes)
    await until_written(table, writes + 2)
    assert "the audit trail cannot be written" in caplog.text
    assert "the oldest 7 entries" in caplog.text
    table.full = False
    await until_written(table, len(table.writes) + 2)
    async with asyncio.timeout(DEADLINE_S):
        await trail.stop()
    assert numbers(table) == list(range(7, PENDING_MAX + 7))
    assert len([record for record in caplog.records if "oldest" in record.message]) == 1


async def test_stopping_on_a_full_store_ends_and_says_what_is_lost(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.full = True
    trail = Trail(table, "all")
    for number in range(5):
        trail.note(entry(number))
    async with asyncio.timeout(DEADLINE_S):
        await trail.stop()
    assert "5 entries are lost" in caplog.text


REASONS = ("", "Forbidden", "InvalidParams", "TaskNotFound", "TooManyRequests", "Unauthorized")


@pytest.mark.parametrize(
    ("keeping", "principal", "kept"),
    [
        ("all", "anonymous", set(REASONS)),
        ("auto", "key:anna", set(REASONS)),
        ("auto", "anonymous", {"Forbidden", "TaskNotFound", "TooManyRequests", "Unauthorized"}),
        ("refused", "key:anna", {"Forbidden", "TaskNotFound", "TooManyRequests", "Unauthorized"}),
        ("off", "key:anna", set()),
    ],
)
async def test_what_is_kept_is_what_the_setting_says(
    table: Table, keeping: str, principal: str, kept: set[str]
) -> None:
    trail = Trail(table, keeping)
    for reason in REASONS:
        if reason or trail.keeps(principal):
            trail.note(entry(reason=reason, principal=principal))
    await trail.stop()
    assert {told.reason for told in table.entries} == kept


def act(action: str, subject: str) -> AuditEntry:
    return AuditEntry(at_ms=0, principal="operator:root", action=action, subject=subject)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.message) for record in caplog.records if record.name == "dragoman.audit"]


@pytest.mark.parametrize("keeping", ["all", "auto", "refused"])
async def test_what_commands_do_beside_the_server_is_logged_once_and_outlasts_a_store_that_fails(
    table: Table, keeping: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    table.done_beside.append(act("keys.create", "before"))
    hearing = asyncio.create_task(Trail(table, keeping).hear())
    async with asyncio.timeout(DEADLINE_S):
        assert await table.looked.get() is None
        table.done_beside += [act("keys.create", "k1"), act("webhooks.redeliver", "1,2")]
        while await table.looked.get() != 3:
            pass
        table.full = True
        while "cannot be read" not in caplog.text:
            await table.looked.get()
        table.full = False
        table.done_beside.append(act("keys.revoke", "k1"))
        while await table.looked.get() != 4:
            pass
    hearing.cancel()
    await asyncio.wait([hearing])
    assert table.entries == [], "they are in the store already"
    assert told(caplog) == [
        ("INFO", "allowed principal=operator:root action=keys.create subject=k1"),
        ("INFO", "allowed principal=operator:root action=webhooks.redeliver subject=1,2"),
        ("INFO", "allowed principal=operator:root action=keys.revoke subject=k1"),
    ]


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
async def test_an_act_of_the_server_itself_is_logged_once(
    table: Table, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    caplog.set_level(level, "dragoman.audit")
    trail = Trail(table, "all")
    hearing = asyncio.create_task(trail.hear())
    own = [
        AuditEntry(at_ms=0, principal="operator:local", action=action, subject="k1", peer="127.0.0.1", reason=reason)
        for action, reason in (("keys.create", ""), ("keys.list", ""), ("keys.revoke", "InvalidParams"))
    ]
    async with asyncio.timeout(DEADLINE_S):
        assert await table.looked.get() is None
        for each in own:
            trail.note(replace(each, allowed=not each.reason))
        await trail.stop()
        assert len(table.entries) == 3
        table.done_beside += [*table.entries, act("keys.create", "k2")]
        while await table.looked.get() != 4:
            pass
    hearing.cancel()
    await asyncio.wait([hearing])
    actions = [words.split("action=")[1].split()[0] for _, words in told(caplog)]
    read = ["keys.list"] if level == logging.DEBUG else []
    assert actions == ["keys.create", *read, "keys.revoke", "keys.create"]


async def test_where_nothing_is_kept_nobody_listens(table: Table) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await Trail(table, "off").hear()
    assert table.looked.empty()


async def test_every_refusal_is_counted_kept_or_not(table: Table) -> None:
    counts, counted = Counts(), []
    trail = Trail(table, "off", counts)
    for reason in ("Forbidden", "InvalidParams", "Forbidden"):
        trail.note(entry(reason=reason))
        counted.append(dict(counts.refusals))
    assert counted == [{"Forbidden": 1}, {"Forbidden": 1, "InvalidParams": 1}, {"Forbidden": 2, "InvalidParams": 1}]


async def test_a_flood_of_the_same_refusal_is_kept_once_a_write(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    trail = Trail(table, "refused")
    for number in range(100):
        trail.note(entry(number, "Unauthorized", peer=f"192.0.2.{number % 2}"))
        trail.note(entry(number, "TaskNotFound"))
    await trail.stop()
    assert [told.peer for told in table.entries if told.reason == "Unauthorized"] == ["192.0.2.0", "192.0.2.1"]
    assert sum(told.reason == "TaskNotFound" for told in table.entries) == 1
    assert "peer=192.0.2.0 repeated=49" in caplog.text
    trail.note(entry(1, "Unauthorized", peer="192.0.2.0"))
    await trail.stop()
    assert sum(told.reason == "Unauthorized" for told in table.entries) == 3


async def test_an_id_that_a_caller_made_up_is_cut(table: Table) -> None:
    trail = Trail(table, "all")
    trail.note(entry(reason="TaskNotFound", task_id="x" * 1_000_000))
    await trail.stop()
    assert table.entries[0].task_id == "x" * ID_CHARACTERS


async def test_refusals_are_logged_and_the_rest_only_at_debug(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.audit")
    trail = Trail(table, "all")
    trail.note(entry(1))
    trail.note(entry(2, "Forbidden", peer="192.0.2.1"))
    await trail.stop()
    assert told(caplog) == [
        ("DEBUG", "allowed principal=key:anna action=GetTask agent=echo task_id=t1"),
        ("INFO", "refused Forbidden principal=key:anna action=GetTask agent=echo task_id=t2 peer=192.0.2.1"),
    ]


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
async def test_a_principal_cannot_forge_a_field_or_a_line(table: Table, formatter: logging.Formatter) -> None:
    output = logging.StreamHandler(StringIO())
    output.setFormatter(formatter)
    trails.told.addHandler(output)
    try:
        trail = Trail(table, "refused")
        trails.told.setLevel(logging.INFO)
        trail.note(entry(reason="Forbidden", principal='jwt:a action=none "b\n'))
    finally:
        trails.told.removeHandler(output)
        trails.told.setLevel(logging.NOTSET)
    (line,) = output.stream.getvalue().splitlines()
    if isinstance(formatter, JsonFormatter):
        told = json.loads(line)
        assert (told["principal"], told["action"]) == ('jwt:a action=none "b\n', "GetTask")
        assert (told["outcome"], told["reason"], told["agent"]) == ("refused", "Forbidden", "echo")
    else:
        assert r'refused Forbidden principal="jwt:a action=none \"b\n" action=GetTask agent=echo' in line
    await trail.stop()
