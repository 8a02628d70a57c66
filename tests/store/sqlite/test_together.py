"""A batch of writes comes out as the same writes one after the other, whatever is in it."""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.store.api import Append, Dedupe, ListQuery, Store
from dragoman.store.sqlite import SqliteStore, writer
from dragoman.store.sqlite.writer import GATHERING_S, GATHERING_TURNS
from dragoman.store.worker_leases import WorkerLeaseChange
from tests.store.cases.bench import START_MS, D, SetClock, W, chunk, ending, loaded, message, new_task
from tests.store.cases.worker_leases import leased, told
from tests.store.sqlite.connections import noted, writing

STATES = (W, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED, TaskState.SUBMITTED)
Action = Callable[[Store], Awaitable[object]]


def any_action(chance: random.Random, number: int) -> Action:
    """One write, as likely as not to be refused, repeated, or to meet another on the same task."""
    task_id = f"t{chance.randrange(12)}"
    dedupe = Dedupe(bytes([chance.randrange(30)]), b"d", START_MS + 1) if chance.random() < 0.3 else None
    holder = chance.choice([None, "h1"])
    match chance.randrange(20):
        case 0 | 1 | 2 | 3:
            task_id = chance.choice([task_id, f"t{12 + number}", f"t{212 + number}", f"t{412 + number}"])
            said = message(f"hello {number}", *([Part(raw=bytes([number % 256]) * 2000)] * chance.randrange(2)))
            new = new_task(task_id, context_id=f"c{number % 3}", holder=holder, dedupe=dedupe, said=said)
            return lambda store: store.create(new)
        case 4 | 5 | 6:
            end = ending(task_id, chance.randrange(1, 6), epoch=chance.choice([None, 1, 2]))
            return lambda store: store.append(end)
        case 7 | 8:
            return lambda store: store.request_cancel(task_id)
        case 9 | 10 if dedupe is not None:
            return lambda store: store.remember(dedupe, message(f"answer {number}"))
    append = Append(
        task_id=task_id,
        events=tuple(chunk(f"{number}.{piece}") for piece in range(chance.randrange(3))),
        state=chance.choice(STATES),
        status_ms=START_MS + number,
        epoch=chance.choice([None, 1, 1, 2]),
        expected_seq=chance.choice([None, None, 1, 2]),
        holder=holder,
        release=chance.random() < 0.2,
        dedupe=dedupe,
    )
    return lambda store: store.append(append)


async def outcome_of(action: Action, store: Store) -> object:
    """The result in a form that can be compared; for an error, its kind."""
    try:
        return await action(store)
    except Exception as error:  # noqa: BLE001  outcomes are compared, errors among them
        return type(error)


@pytest.mark.parametrize("seed", range(12))
async def test_a_batch_comes_out_as_its_writes_one_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    together, alone = SqliteStore("memory:", SetClock()), SqliteStore("memory:", SetClock())
    await together.open("h1")
    await alone.open("h1")
    try:
        for batch in range(8):
            actions = [any_action(chance, batch * 20 + number) for number in range(chance.randrange(2, 20))]
            outcomes = await asyncio.gather(*(outcome_of(action, together) for action in actions))
            assert outcomes == [await outcome_of(action, alone) for action in actions]
            for number in range(200):
                one, other = await together.load(f"t{number}"), await alone.load(f"t{number}")
                assert str(one) == str(other)
            for state in (None, D, *STATES):
                query = ListQuery(owner="ann", agent="echo", state=state)
                assert str(await together.list(query)) == str(await alone.list(query))
    finally:
        await together.close()
        await alone.close()


async def test_what_arrived_during_a_batch_is_committed_with_what_comes_of_it() -> None:
    """Else two groups of callers take turns, each with commits of its own, for as long as they call."""
    store, loop = SqliteStore("memory:", SetClock()), asyncio.get_running_loop()
    begun, go_on, commits = asyncio.Event(), threading.Event(), list[None]()
    with noted() as connections:
        await store.open("h1")
    try:

        def committing() -> bool:
            loop.call_soon_threadsafe(begun.set)
            commits.append(None)
            return not go_on.wait(60)

        writing(connections).set_commit_hook(committing)
        first = store.create(new_task("t0"))

        async def what_comes_of_it() -> None:
            await first
            await asyncio.sleep(0)
            await store.create(new_task("t2"))

        following = asyncio.create_task(what_comes_of_it())
        async with asyncio.timeout(60):
            await begun.wait()
            meanwhile = store.create(new_task("t1"))
            for _ in range(20):
                await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(meanwhile, following)
        assert len(commits) == 2, "that of the first batch, and one of both that follow"
    finally:
        go_on.set()
        await store.close()


async def test_words_of_workers_wait_for_as_many_as_were_under_way_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers come back some turns after their outcome, one by one. A batch waits as long as the last commit took."""
    monkeypatch.setattr(writer, "EXPECTED_S", 60.0)
    store, loop = SqliteStore("memory:", SetClock()), asyncio.get_running_loop()
    begun, go_on, commits = asyncio.Event(), threading.Event(), list[None]()
    with noted() as connections:
        await store.open("h1")
    try:
        leases = [await leased(store, f"t{number}") for number in range(2)]
        words = [told(await loaded(store, lease.task_id), replace(lease, version=1)) for lease in leases]
        second = replace(words[0], expected_seq=3, lease=WorkerLeaseChange(replace(leases[0], version=2)))

        def committing() -> bool:
            loop.call_soon_threadsafe(begun.set)
            commits.append(None)
            time.sleep(1)
            return not go_on.wait(60)

        writing(connections).set_commit_hook(committing)
        first = store.append(words[0])

        async def come_back() -> None:
            await first
            for _ in range(4 * GATHERING_TURNS):
                await asyncio.sleep(0)
            await store.append(second)

        returning = asyncio.create_task(come_back())
        async with asyncio.timeout(60):
            await begun.wait()
            meanwhile = store.append(words[1])
            go_on.set()
            await asyncio.gather(meanwhile, returning)
        assert len(commits) == 2, "that of the first word, and one of both that follow"
    finally:
        go_on.set()
        await store.close()


async def test_a_lone_worker_waits_for_nobody_and_nobody_else_waits_for_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, loop = SqliteStore("memory:", SetClock()), asyncio.get_running_loop()
    waits, call_later = list[float](), loop.call_later

    def noting(delay_s: float, callback: Callable[..., object], *values: object) -> asyncio.TimerHandle:
        if isinstance(getattr(callback, "__self__", None), writer.SqliteWriter):
            waits.append(delay_s)
        return call_later(delay_s, callback, *values)

    monkeypatch.setattr(loop, "call_later", noting)
    await store.open("h1")
    try:
        leases = [await leased(store, f"t{number}") for number in range(2)]

        async def tell(number: int, version: int) -> None:
            stored = await loaded(store, f"t{number}")
            await store.append(told(stored, replace(leases[number], version=version)))

        await asyncio.gather(tell(0, 1), tell(1, 1))
        await store.create(new_task("t2"))
        assert waits == []
        await asyncio.gather(tell(0, 2), tell(1, 2))
        await tell(0, 3)
        assert len(waits) == 1, "once for the other worker, in vain"
        for version in range(4, 10):
            await tell(0, version)
        assert len(waits) == 1
    finally:
        await store.close()


async def test_a_write_that_is_no_word_does_not_wait_for_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "EXPECTED_S", 60.0)
    store, loop = SqliteStore("memory:", SetClock()), asyncio.get_running_loop()
    timers, call_later = list[asyncio.TimerHandle](), loop.call_later

    def noting(delay_s: float, callback: Callable[..., object], *values: object) -> asyncio.TimerHandle:
        timer = call_later(delay_s, callback, *values)
        if isinstance(getattr(callback, "__self__", None), writer.SqliteWriter):
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_later", noting)
    with noted() as connections:
        await store.open("h1")
    try:
        leases = [await leased(store, f"t{number}") for number in range(2)]
        read = [await loaded(store, lease.task_id) for lease in leases]
        writing(connections).set_commit_hook(lambda: bool(time.sleep(1)))
        await asyncio.gather(*(store.append(told(read[n], replace(leases[n], version=1))) for n in range(2)))
        writing(connections).set_commit_hook(None)
        word = store.append(told(await loaded(store, "t0"), replace(leases[0], version=2)))
        while not timers:
            await asyncio.sleep(0)
        assert not word.done(), "it waits for the other worker"
        await store.create(new_task("t2"))
        assert loop.time() < timers[0].when()
        assert word.done()
    finally:
        await store.close()


async def test_a_loop_that_takes_long_for_its_turns_does_not_keep_the_writes_of_each_waiting() -> None:
    store, loop, writes = SqliteStore("memory:", SetClock()), asyncio.get_running_loop(), list[Awaitable[object]]()
    tasks, batches = list[str](), list[int]()
    with noted() as connections:
        await store.open("h1")
    try:

        def changed(_: int, database: str, table: str, row: int) -> None:
            if table == "tasks":
                tasks.append(table)

        def committing() -> bool:
            batches.append(len(tasks))
            return False

        def turn() -> None:
            time.sleep(GATHERING_S)
            writes.append(store.create(new_task(f"t{len(writes)}")))
            if len(writes) < GATHERING_TURNS:
                loop.call_soon(turn)

        writing(connections).set_update_hook(changed)
        writing(connections).set_commit_hook(committing)
        turn()
        async with asyncio.timeout(60):
            await writes[0]
            while len(writes) < GATHERING_TURNS:
                await asyncio.sleep(0)
            await asyncio.gather(*writes)
        assert 1 <= batches[0] <= 4
        assert batches[-1] == len(writes)
    finally:
        await store.close()
