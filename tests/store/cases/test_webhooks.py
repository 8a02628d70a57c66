"""Webhook configurations: their registration, replacement and removal.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.store.api import StoreError, Unknown
from dragoman.store.outbox import Lane, Registration, Settled
from tests.store.cases.bench import (
    START_MS,
    Bench,
    D,
    by_run,
    chunk,
    ending,
    loaded,
    new_task,
    refused,
)
from tests.store.cases.deliveries import HOST, any_claimed, claimed, pushed_task, telling, webhook


async def test_a_webhook_that_is_removed_takes_what_it_is_owed_with_it(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        await store.outbox.register("t1", webhook("x"), (telling(1, "x"),))
        flying = await claimed(bench, store)
        assert await store.outbox.remove("t1", "w")
        assert not await store.outbox.remove("t1", "w")
        assert not await store.outbox.remove("t2", "x")
        for due in flying:
            await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(telling(3), telling(3, "x"))))
        assert await any_claimed(bench, store) == ["x-3"]
        assert (await loaded(store, "t1")).pushed
        assert await store.outbox.remove("t1", "x")
        assert not (await loaded(store, "t1")).pushed
        assert await store.outbox.configs("t1") == ()
        assert await store.outbox.owed_count() == (0, 0)


async def test_webhooks_are_found_by_the_key_that_made_them(bench: Bench) -> None:
    def made(config_id: str, key: str) -> Registration:
        return replace(webhook(config_id), key=key)

    async with bench.store() as store:
        await store.create(replace(new_task("t1", owner="key:ann"), push=made("w", "leaked")))
        await store.create(replace(new_task("t2", owner="key:ann"), push=made("w", "other")))
        await store.create(replace(new_task("t3", owner="key:ann"), push=made("w", "")))
        await store.create(replace(new_task("t4", owner="key:bob"), push=made("w", "")))
        await store.outbox.register("t2", made("x", "leaked"), ())
        await store.append(replace(by_run("t2", chunk("a")), push=made("y", "leaked")))
        found = await store.outbox.made_with("leaked", 10)
        assert [(each.task_id, each.config_id) for each in found] == [("t1", "w"), ("t2", "x"), ("t2", "y")]
        assert {(each.agent, each.host) for each in found} == {("echo", HOST)}
        assert await store.outbox.made_with("leaked", 1) == found[:1]
        assert await store.outbox.keyless("key:ann") == 1
        await store.outbox.register("t1", made("w", "other"), ())
        await store.outbox.remove("t2", "x")
        assert [each.config_id for each in await store.outbox.made_with("leaked", 10)] == ["y"], "replaced, removed"
        await store.append(ending("t3", 1))
        assert await store.outbox.keyless("key:ann") == 0, "an ended task tells nothing any more"
        assert await store.outbox.made_with("", 10) == ()


async def test_a_webhook_is_registered_at_any_time(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await loaded(store, "t1")
        await refused(store.outbox.register("t2", webhook(), (telling(1),)), Unknown)
        ended = store.append(ending("t1", 1))
        await store.outbox.register("t1", webhook(), (telling(2, kept=True),))
        assert ended.done(), "the writes of a task land in the order of the calls"
        assert (await loaded(store, "t1")).pushed
        assert (await loaded(store, "t1")).state is D
        (due,) = await claimed(bench, store)
        assert due.delivery == telling(2, kept=True)


async def test_a_webhook_comes_with_a_message_to_a_task(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.append(replace(by_run("t1", chunk("a")), push=webhook(), deliveries=(telling(2),)))
        assert (await loaded(store, "t1")).pushed
        assert await any_claimed(bench, store) == ["w-2"]


async def test_a_registration_of_the_same_id_takes_the_place_of_the_first(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        await store.outbox.register("t1", webhook("x"), ())
        elsewhere = webhook(host="https://elsewhere.example:8443", path="/new")
        await store.outbox.register("t1", elsewhere, (telling(3),))
        assert await store.outbox.configs("t1") == (elsewhere.config, webhook("x").config)
        seen = []
        for lane in (Lane.UNKNOWN, Lane.HEALTHY, Lane.HEALTHY):
            (due,) = await claimed(bench, store, lane)
            assert (due.host, due.config) == (elsewhere.host, elsewhere.config)
            seen.append(due.delivery.id)
            await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        assert seen == ["w-1", "w-2", "w-3"]


async def test_secrets_are_with_configurations_and_claims_only(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        (config,) = await store.outbox.configs("t1")
        assert (config.token, config.credentials, config.secret) == ("a-token", "a-credential", "a-secret")
        (owed,) = await store.outbox.owed()
        assert not any(secret in str(owed) for secret in ("a-token", "a-credential", "a-secret", "body"))
        assert (owed.task_id, owed.agent, owed.config_id, owed.url) == ("t1", "echo", "w", f"{HOST}/in")
        assert (owed.seq, owed.made_ms, owed.due_ms) == (1, START_MS, START_MS)


async def test_an_outbox_that_is_closed_says_so(bench: Bench) -> None:
    async with bench.store() as store:
        outbox = store.outbox
    for waiting in (outbox.register("t", webhook(), ()), outbox.settle(Settled(number=1, outcome="delivered"))):
        try:
            await asyncio.wait_for(waiting, 60)
        except StoreError:
            continue
        raise AssertionError("a closed store took a write")
