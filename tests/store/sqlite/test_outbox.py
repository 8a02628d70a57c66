"""The outbox in a file: a batch comes out as its writes one by one, and what is owed to the dead costs nothing."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import msgspec
import pytest
from msgspec.structs import replace

from dragoman.store.api import Append, NewTask, OverQuota, Quota, Store, StoreError
from dragoman.store.codec import Codec
from dragoman.store.outbox import Delivery, Due, Lane, Settled
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.schema import check, migrations
from tests.store.cases.bench import START_MS, SetClock, TaskState, W, chunk, ending, new_task
from tests.store.cases.deliveries import CLAIM_MS, HOST, telling, webhook
from tests.store.sqlite.connections import noted, writing

Action = Callable[[Store], Awaitable[object]]


def any_deliveries(chance: random.Random, number: int) -> tuple[Delivery, ...]:
    """Some, of webhooks that may not be there."""
    some = [
        telling(number, chance.choice("wwxy"), kept=chance.random() < 0.3, name=f"{number}.{piece}")
        for piece in range(chance.randrange(4))
    ]
    return tuple(replace(one, body=bytes(20_000)) if chance.random() < 0.3 else one for one in some)


def any_action(chance: random.Random, number: int) -> Action:
    """One write that has to do with webhooks."""
    task_id = f"t{chance.randrange(12)}"
    push = webhook(chance.choice("wxy"), host=f"https://h{chance.randrange(4)}:443", path=f"/{number}")
    owing = any_deliveries(chance, number)
    match chance.randrange(12):
        case 0 | 1 | 2:
            new = new_task(chance.choice([task_id, f"t{12 + number}"]), owner=chance.choice(["ann", "bob"]))
            made = replace(new, push=chance.choice([push, None]), deliveries=owing)
            return lambda store: store.create(made)
        case 3:
            return lambda store: store.outbox.register(task_id, push, owing)
        case 4:
            return lambda store: store.outbox.remove(task_id, push.config.id)
        case 5:
            end = replace(ending(task_id, chance.randrange(1, 4)), deliveries=owing)
            return lambda store: store.append(end)
    append = Append(
        task_id=task_id,
        events=tuple(chunk(f"{number}.{piece}") for piece in range(chance.randrange(3))),
        state=chance.choice([W, TaskState.INPUT_REQUIRED]),
        status_ms=START_MS + number,
        epoch=chance.choice([None, 1]),
        deliveries=owing,
        push=push if chance.random() < 0.1 else None,
    )
    return lambda store: store.append(append)


async def outcome_of(action: Action, store: Store) -> object:
    """The result in a form that can be compared; for an error, its kind."""
    try:
        return await action(store)
    except Exception as error:  # noqa: BLE001  outcomes are compared, errors among them
        return type(error)


async def owed_by_webhook(store: Store) -> dict[tuple[str, str], list[tuple[object, ...]]]:
    """The pending deliveries, in order: numbers are the store's own."""
    owed = defaultdict(list)
    for one in await store.outbox.owed(limit=10_000):
        owed[one.task_id, one.config_id].append((one.id, one.attempts, one.dead, one.due_ms, one.reason, one.url))
    return dict(owed)


async def everything_due(store: Store, now_ms: int) -> list[Due]:
    """The claimed deliveries, in an order that does not depend on numbers."""
    dues = [
        due
        for lane in Lane
        for due in await store.outbox.claim(lane, now_ms, now_ms + CLAIM_MS, limit=100, per_host=100)
    ]
    return sorted(dues, key=lambda due: (due.task_id, due.config.id))


def any_settled(chance: random.Random, now_ms: int) -> list[Settled]:
    """The possible outcomes of an attempt; sometimes one is told twice."""
    settled = Settled(
        number=0,
        outcome=chance.choice(["delivered", "delivered", "retry", "retry", "dead", "gone"]),
        due_ms=now_ms + chance.choice([0, 1, 2 * CLAIM_MS]),
        reason=f"because {chance.randrange(9)}",
        reached=chance.random() < 0.5,
    )
    return [settled] * chance.choice([0, 1, 1, 1, 2])


@pytest.mark.parametrize("seed", range(8))
async def test_a_batch_comes_out_as_its_writes_one_after_the_other(seed: int, tmp_path: Path) -> None:
    chance, clock = random.Random(seed), SetClock()
    path = tmp_path / "store.db"
    together, alone = SqliteStore(f"sqlite:///{path}", clock), SqliteStore("memory:", clock)
    await together.open("h1")
    await alone.open("h1")
    earlier: list[tuple[Due, Due]] = []
    try:
        for batch in range(16):
            actions = [any_action(chance, batch * 20 + number) for number in range(chance.randrange(2, 20))]
            outcomes = await asyncio.gather(*(outcome_of(action, together) for action in actions))
            assert outcomes == [await outcome_of(action, alone) for action in actions]
            clock.ms += chance.choice([1, CLAIM_MS])
            dues, others = await everything_due(together, clock.ms), await everything_due(alone, clock.ms)
            assert [replace(due, number=0) for due in dues] == [replace(due, number=0) for due in others]
            claims = list(zip(dues, others, strict=True))
            late = chance.sample(earlier, min(len(earlier), 4)) if chance.random() < 0.5 else []
            earlier += claims
            pairs = [
                (replace(settled, number=due.number), replace(settled, number=other.number))
                for due, other in [*late, *claims]
                for settled in any_settled(chance, clock.ms)
            ]
            await asyncio.gather(*(together.outbox.settle(settled) for settled, _ in pairs))
            for _, settled in pairs:
                await alone.outbox.settle(settled)
            if chance.random() < 0.3:
                assert await together.outbox.revive(None, clock.ms) == await alone.outbox.revive(None, clock.ms)
            assert await owed_by_webhook(together) == await owed_by_webhook(alone)
            assert await together.outbox.owed_count() == await alone.outbox.owed_count()
            for number in range(220):
                assert await together.outbox.configs(f"t{number}") == await alone.outbox.configs(f"t{number}")
                assert str(await together.load(f"t{number}")) == str(await alone.load(f"t{number}"))
            assert check(path) == []
    finally:
        await together.close()
        await alone.close()


def many_owed(task_id: str, host: str, count: int) -> NewTask:
    """A task to whose webhook much is owed."""
    return replace(new_task(task_id), push=webhook(host=host), deliveries=tuple(map(telling, range(count))))


async def steps_of_a_claim(store: SqliteStore, writer: apsw.Connection, clock: SetClock) -> tuple[int, tuple[Due, ...]]:
    """The cost of a claim of the healthy lane, in steps of SQLite's machine, and what it takes."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    writer.set_progress_handler(count, 1)
    try:
        dues = await store.outbox.claim(Lane.HEALTHY, clock.ms, clock.ms + CLAIM_MS, limit=10, per_host=10)
    finally:
        writer.set_progress_handler(None)
    return steps, dues


async def test_what_is_owed_to_dead_hosts_costs_a_claim_of_live_ones_nothing() -> None:
    costs = []
    for dead_hosts in (1, 100):
        clock = SetClock()
        store = SqliteStore("memory:", clock)
        with noted() as connections:
            await store.open("h1")
        try:
            for first in range(0, 10 * dead_hosts, 100):
                tasks = [
                    many_owed(f"d{n}", f"https://dead{n % dead_hosts}:443", 100)
                    for n in range(first, min(first + 100, 10 * dead_hosts))
                ]
                await asyncio.gather(*map(store.create, tasks))
            assert (await store.outbox.owed_count())[0] == 1000 * dead_hosts
            while dues := await store.outbox.claim(Lane.UNKNOWN, clock.ms, clock.ms + 1, limit=100, per_host=100):
                failed = [Settled(number=due.number, outcome="retry", due_ms=clock.ms, reached=False) for due in dues]
                await asyncio.gather(*map(store.outbox.settle, failed))
            await store.create(many_owed("live", HOST, 20))
            (due,) = await store.outbox.claim(Lane.UNKNOWN, clock.ms, clock.ms + 1, limit=10, per_host=10)
            await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
            steps, dues = await steps_of_a_claim(store, writing(connections), clock)
            assert [due.task_id for due in dues] == ["live"]
            costs.append(steps)
        finally:
            await store.close()
    assert costs[1] <= costs[0] * 1.2, f"steps: {costs}"


async def test_a_command_beside_the_server_sends_dead_letters_again(tmp_path: Path) -> None:
    clock, url = SetClock(), f"sqlite:///{tmp_path}/store.db"
    server, command = SqliteStore(url, clock), SqliteStore(url, clock)
    await server.open("h1")
    try:
        await server.create(many_owed("t1", HOST, 3))
        (due,) = await everything_due(server, clock.ms)
        await server.outbox.settle(Settled(number=due.number, outcome="dead", reason="HTTP 500"))
        await command.open(None)
        try:
            (letter,) = await command.outbox.owed(dead=True)
            assert letter.reason == "HTTP 500"
            assert await command.outbox.revive([letter.number], clock.ms) == 1
            with pytest.raises(StoreError, match="beside"):
                await command.outbox.register("t1", webhook(), ())
            with pytest.raises(StoreError, match="beside"):
                await command.outbox.claim(Lane.HEALTHY, clock.ms, clock.ms + 1, 1, 1)
        finally:
            await command.close()
        (again,) = await everything_due(server, clock.ms)
        assert again.number == due.number
    finally:
        await server.close()


async def test_an_owner_over_its_quota_does_not_undo_the_batch_it_comes_with() -> None:
    store = SqliteStore("memory:", SetClock())
    await store.open("h1")
    try:
        over = replace(new_task("over"), quota=Quota(1, 0, 0))
        await store.create(replace(over, head=replace(over.head, id="first")))
        outcomes = await asyncio.gather(
            store.create(new_task("t1")), store.create(over), store.append(ending("first", 1)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes].count(OverQuota) <= 1
        assert await store.load("t1") is not None
    finally:
        await store.close()


async def test_what_was_owed_before_sizes_were_known_is_claimed_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    older = apsw.Connection(str(path))
    for step in (step for step in migrations() if step.version <= 3):
        older.execute(step.sql)
    older.execute("PRAGMA user_version = 3")
    older.execute("INSERT INTO push_hosts (host, lane, due_ms, name) VALUES (1, 1, 5, ?)", (HOST,))
    settings = msgspec.msgpack.encode(webhook().config)
    older.execute("INSERT INTO scopes (scope, owner, agent) VALUES (1, 'ann', 'echo')")
    for task, size in enumerate((20_000, 10, 16_384), 1):
        columns = "task, id, scope, context, state, status_ms, seq, epoch, log_bytes, head, pushed"
        head = Codec().encode(new_task(f"t{task}").head)
        values = (task, f"t{task}", head)
        older.execute(f"INSERT INTO tasks ({columns}) VALUES (?, ?, 1, 'c', 4, 1, 1, 0, 0, ?, 1)", values)
        older.execute(
            "INSERT INTO push_configs (config, task, host, due_ms, id, settings) VALUES (?, ?, 1, ?, 'w', ?)",
            (task, task, 4 + task, settings),
        )
        older.execute(
            "INSERT INTO deliveries (config, seq, kept, made_ms, id, body) VALUES (?, 1, 1, 1, ?, ?)",
            (task, f"d{task}", bytes(size)),
        )
    older.close()
    clock = SetClock()
    store = SqliteStore(f"sqlite:///{path}", clock)
    await store.open("h1")
    try:
        small = await store.outbox.claim(Lane.UNKNOWN, clock.ms, clock.ms + 1, 10, 10, bytes_max=0)
        assert [due.delivery.id for due in small] == ["d2", "d3"]
        (large,) = await store.outbox.claim(Lane.UNKNOWN, clock.ms, clock.ms + 1, 10, 10)
        assert (large.delivery.id, large.delivery.dialect, len(large.delivery.body)) == ("d1", "", 20_000)
    finally:
        await store.close()
