"""The memory and the stored state of agents whose tasks workers do: whose it is, its bounds, and who may write it."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from dragoman import Context, MemoryChanged, MemoryFull
from dragoman.agents.python.context import run_of
from dragoman.agents.python.memory import CONVERSATION_BYTES_MAX, VALUE_BYTES_MAX
from dragoman.agents.worker import leased_state
from dragoman.agents.worker.leased_state import ANSWER_BYTES
from dragoman.engine.state_space import StateSpace, read_below
from dragoman.store.api import StateChanged, StateFull
from dragoman.store.state import StatePut
from tests.agents.worker.test_worker_steps import agent_of, hiring, leased, site, taken_again, text_of
from tests.kit.workers import WorkerDoor

NOTHING = {"value": None, "version": 0}


async def remember(door: WorkerDoor, lease: str, verb: str, number: int, **said: Any) -> Any:
    return await door.report("memory", lease, verb=verb, number=number, **said)


def raw(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# -- any worker over HTTP ----------------------------------------------------------------------------------------------


async def test_a_later_worker_reads_what_the_first_one_read_and_writes_nothing_again(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        city = {"key": "city"}
        first = [await remember(door, lease, "get", 1, **city)]
        for _ in range(2):  # the first answer was lost
            first[1:] = [await remember(door, lease, "set", 2, **city, value={"name": "Lyon"})]
        first.append(await remember(door, lease, "get", 3, **city))
        first.append(await remember(door, lease, "list", 4, prefix="ci"))
        first.append(await remember(door, lease, "delete", 5, **city))
        version = first[1]["version"]
        assert first == [
            NOTHING,
            {"version": version},
            {"value": {"name": "Lyon"}, "version": version},
            {"items": [{**city, "value": {"name": "Lyon"}, "version": version}]},
            {},
        ]
        await remember(door, lease, "set", 6, **city, value="Nice")
        later = await taken_again(door, lease)
        again = [
            await remember(door, later, "get", 1, **city),
            await remember(door, later, "set", 2, **city, value={"name": "Lyon"}),
            await remember(door, later, "get", 3, **city),
            await remember(door, later, "list", 4, prefix="ci"),
            await remember(door, later, "delete", 5, **city),
        ]
        assert again == first
        await remember(door, later, "set", 6, **city, value="Nice")
        assert (await remember(door, later, "get", 7, **city))["value"] == "Nice"


async def test_the_memory_is_that_of_the_conversation_of_the_caller_or_of_all(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        for number, of in enumerate(("conversation", "caller", "all"), 1):
            await remember(door, lease, "set", number, of=of, key="of", value=of)
        await door.report("complete", lease)
        _, other = await leased(door)
        found = [
            await remember(door, other, "get", number, of=of, key="of")
            for number, of in enumerate(("conversation", "caller", "all"), 1)
        ]
        assert [each["value"] for each in found] == [None, "caller", "all"]


async def test_what_has_no_room_or_was_changed_comes_back_as_a_failure(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        large = await remember(door, lease, "set", 1, key="k", value="x" * VALUE_BYTES_MAX)
        assert (large["failure"]["type"], "split it" in large["failure"]["text"]) == ("MemoryFull", True)
        value, number = "x" * (VALUE_BYTES_MAX - 100), 1
        while "failure" not in (full := await remember(door, lease, "set", number, key=f"k{number}", value=value)):
            number += 1
        assert (full["failure"]["type"], number) == ("MemoryFull", CONVERSATION_BYTES_MAX // VALUE_BYTES_MAX + 1)
        changed = await remember(door, lease, "set", number + 1, key="k1", value=1, if_version=0)
        assert changed["failure"]["type"] == "MemoryChanged"
        later = await taken_again(door, lease)
        for done in range(1, number):
            await remember(door, later, "set", done, key=f"k{done}", value=value)
        assert await remember(door, later, "set", number, key=f"k{number}", value=value) == full
        assert await remember(door, later, "set", number + 1, key="k1", value=1, if_version=0) == changed


async def test_a_worker_that_has_lost_its_task_remembers_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        later = await taken_again(door, lease)
        for verb in ("get", "set", "delete", "list"):
            body = {"lease": lease, "verb": verb, "number": 1, "key": "k", "value": 1}
            assert (await door.act("memory", body))[0] == 409
        for body in ({"get": ["k"]}, {"list": {}}, {"write": {"puts": [{"key": "k", "value": raw("1")}]}}):
            assert (await door.act("state", {"lease": lease, "kind": "memory", **body}))[0] == 409
        assert await remember(door, later, "get", 1, key="k") == NOTHING


async def test_another_call_than_is_recorded_ends_the_task(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        task_id, lease = await leased(door)
        await remember(door, lease, "get", 1, key="a")
        later = await taken_again(door, lease)
        assert (await door.act("memory", {"lease": later, "verb": "get", "number": 1, "key": "b"}))[0] == 409
        assert (await door.task(task_id))["status"]["message"]["metadata"] == {"reason": "replay_mismatch"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"verb": "get", "key": "k"}, "number: is missing"),
        ({"verb": "get", "number": 1}, "key=''"),
        ({"verb": "get", "number": 1, "key": "k" * 2000}, "key"),
        ({"verb": "read", "number": 1, "key": "k"}, "verb"),
        ({"number": 1, "key": "k"}, "verb"),
        ({"verb": "set", "number": 1, "key": "k"}, "value: is missing"),
        ({"verb": "set", "number": 1, "key": "k", "value": 1, "ttl_s": 0}, "ttl_s=0"),
        ({"verb": "set", "number": 1, "key": "k", "value": 1, "if_version": "1"}, "if_version"),
        ({"verb": "list", "number": 1, "limit": 0}, "limit=0"),
        ({"verb": "list", "number": 1, "limit": 1001}, "limit=1001"),
        ({"verb": "get", "number": 1, "key": "k", "of": "everybody"}, "of"),
    ],
)
async def test_what_is_no_memory_is_refused_and_named(tmp_path: Path, body: dict[str, Any], text: str) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        status, answer = await door.act("memory", {"lease": lease, **body})
        assert (status, text in answer["error"]["message"]) == (400, True), answer
        assert await remember(door, lease, "get", 1, key="k") == NOTHING  # it has the task still


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"kind": "memory", "write": {"puts": [{"key": "k", "value": raw("x" * (VALUE_BYTES_MAX + 1))}]}}, "65536"),
        ({"kind": "session", "get": [""]}, "state key ''"),
        ({"kind": "session", "write": {"puts": [{"key": "a\0", "value": ""}]}}, "state key"),
        ({"kind": "session", "write": {"puts": [{"key": "a", "value": "no base64"}]}}, "value"),
        ({"kind": "tasks", "get": ["k"]}, "kind"),
    ],
)
async def test_what_is_no_state_is_refused_and_named(tmp_path: Path, body: dict[str, Any], text: str) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        status, answer = await door.act("state", {"lease": lease, **body})
        assert (status, text in answer["error"]["message"]) == (400, True), answer


async def test_raw_writes_of_a_memory_are_bounded_as_a_whole(tmp_path: Path) -> None:
    async with site(tmp_path) as door:
        _, lease = await leased(door)
        for said in ({}, {"max_bytes": 1 << 40}):
            for number in range(20):
                puts = [{"key": f"k{number}", "value": raw("x" * 60_000)}]
                reply = await door.report("state", lease, kind="memory", write={"puts": puts, **said})
                assert ("full" in reply) == (number * 60_000 > CONVERSATION_BYTES_MAX - 61_000), number
        assert reply["full"]["max_bytes"] == CONVERSATION_BYTES_MAX


# -- `dragoman worker` -------------------------------------------------------------------------------------------------


async def test_a_worker_that_dies_and_another_one_remember_alike(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:
        seen: list[Any] = []

        async def skill(ctx: Context) -> str:
            """Work."""
            before = await ctx.memory.get("count")
            version = await ctx.memory.set("count", 1 if before is None else before.value + 1)
            with pytest.raises(MemoryChanged):
                await ctx.memory.set("count", 9, if_version=version + 1)
            with pytest.raises(MemoryFull):
                await ctx.memory.set("large", "x" * VALUE_BYTES_MAX)
            await ctx.memory.caller.set("seen", True, ttl_s=600)
            page = await ctx.memory.list("co")
            seen.append((before, version, page, await ctx.memory.caller.get("seen")))
            await workers.hang("remembered")
            return str(await ctx.memory.get("count"))

        agent = agent_of(skill)
        workers.hire(agent)
        sent = await workers.door.send()
        await workers.gate("remembered").wait()
        await workers.kill()
        workers.hire(agent)
        assert "value=1" in await text_of(workers.door, sent["id"])
        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert seen[0][0] is None


async def test_a_worker_writes_under_the_epoch_that_an_answer_gives(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:

        async def skill(ctx: Context) -> str:
            """Work."""
            first = await ctx.memory.set("k", 1)
            await ctx.ask("Go on?")
            return "grown" if await ctx.memory.set("k", 2, if_version=first) > first else "not grown"

        workers.hire(agent_of(skill))
        sent = await workers.door.send()
        await workers.door.reach(sent["id"], "INPUT_REQUIRED")
        await workers.door.send("yes", taskId=sent["id"])
        assert await text_of(workers.door, sent["id"]) == "grown"


async def test_agents_may_share_their_memory_among_callers(tmp_path: Path) -> None:
    async with hiring(tmp_path) as workers:

        async def skill(ctx: Context) -> str:
            """Work."""
            await ctx.memory.caller.set("k", "everybody's")
            return "done"

        workers.hire(agent_of(skill, memory="shared"))
        sent = await workers.door.send()
        await workers.door.reach(sent["id"], "COMPLETED")
        await workers.close()
        _, lease = await leased(workers.door)
        assert (await remember(workers.door, lease, "get", 1, of="all", key="k"))["value"] == "everybody's"
        assert await remember(workers.door, lease, "get", 2, of="caller", key="k") == NOTHING


async def test_a_worker_uses_the_state_of_a_framework_as_in_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leased_state, "READ_AT_ONCE", 3)
    async with hiring(tmp_path) as workers:
        seen: list[Any] = []

        async def use(space: StateSpace) -> None:
            values = {f"n/{number}": bytes([number]) * (ANSWER_BYTES // 3) for number in range(10)}
            for key, value in values.items():
                await space.write_entries(puts=[StatePut(key, value)], if_versions={key: 0})
            assert {each.key: each.value async for each in read_below(space, "n/")} == values
            down = [each.key async for each in read_below(space, "n/", descending=True)]
            assert down == sorted(values, reverse=True)
            assert [each.key for each in await space.list_entries("n/", 2, "n/3")] == ["n/4", "n/5"]
            got = await space.get_entries(["none", *reversed(values)])
            assert [each.key for each in got] == sorted(values)
            version = await space.write_entries(
                puts=[StatePut("soon", b"1", space.now_ms() + 600_000)], prefixes=["n/1"], deletes=["n/2"], act="a"
            )
            assert await space.write_entries(puts=[StatePut("never", b"")], act="a") == version
            assert [each.key async for each in read_below(space, "n/")] == [key for key in values if key[2] not in "12"]
            with pytest.raises(StateChanged) as changed:
                await space.write_entries(deletes=["soon"], if_versions={"soon": 1})
            assert (changed.value.key, changed.value.version) == ("soon", version)
            with pytest.raises(StateFull) as full:
                await space.write_entries(puts=[StatePut("more", b"x")], max_bytes=1)
            assert full.value.max_bytes == 1
            await space.write_entries(puts=[StatePut("soon", b"1", space.now_ms() + 100)])
            while await space.get_entries(["soon"]):
                await asyncio.sleep(0.01)
            with pytest.raises(ValueError, match="state key ''"):
                await space.get_entries([""])

        async def skill(ctx: Context) -> str:
            """Work."""
            for kind in ("session", "checkpoint"):
                seen.append(await run_state(ctx, kind))
            store = await run_state(ctx, "store")
            assert store is not None
            await use(store)
            return "used"

        workers.hire(agent_of(skill))
        sent = await workers.door.send()
        assert await text_of(workers.door, sent["id"]) == "used"
        assert seen == [None, None]  # of agents of frameworks alone


async def run_state(ctx: Context, kind: Any) -> StateSpace | None:
    return await run_of(ctx).state(kind)
