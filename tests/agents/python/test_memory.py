"""The memory of an agent: whose it is, how much it takes, and that a later run goes on with it as the first one did."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from dragoman import Agent, Context, MemoryChanged, MemoryFull, SyncContext, TaskState
from dragoman.agents.python.context import run_of
from dragoman.agents.python.memory import CALLER_BYTES_MAX, CONVERSATION_BYTES_MAX, VALUE_BYTES_MAX
from dragoman.model.events import Stepped
from dragoman.model.ids import SystemClock
from dragoman.store.api import Store
from dragoman.store.open import open_store
from dragoman.store.state import StatePut, StateScope, StateWrite
from dragoman.testing import run
from tests.engine.house import House, call, house, sending, text_of

S = TaskState
TALK = StateScope("agent", "anna", "talk", "memory")


def agent_of(skill: Callable[[Any], Any], **declared: Any) -> Agent:
    agent = Agent("agent", **declared)
    agent.skill("skill")(skill)
    return agent


async def remember(ctx: Context) -> str:
    """Remember the text in the conversation and of the caller. Returns what was there before."""
    before = await ctx.memory.get("said"), await ctx.memory.caller.get("said")
    await ctx.memory.set("said", ctx.text)
    await ctx.memory.caller.set("said", ctx.text)
    return " ".join("-" if found is None else found.value for found in before)


async def put(url: str, **values: object) -> None:
    """Write to the memory of the conversation while no server runs."""
    store = open_store(url, SystemClock())
    await store.open("h1")
    puts = tuple(StatePut(key, msgspec.json.encode(value)) for key, value in values.items())
    await store.state.write_entries(StateWrite(scope=TALK, puts=puts))
    await store.close()


async def stored(h: House) -> dict[str, Any]:
    return {entry.key: msgspec.json.decode(entry.value) for entry in await h.store.state.list_entries(TALK)}


# -- in one run --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
async def test_what_is_set_is_read_with_its_version(plain: bool) -> None:
    seen: list[Any] = []

    async def skill(ctx: Context) -> None:
        seen.append(await ctx.memory.get("k"))
        first = await ctx.memory.set("k", {"a": [1, None, "ü"]})
        second = await ctx.memory.set("k", (1, 2), if_version=first)
        value, version = await ctx.memory.get("k") or (None, 0)
        seen.extend([value, version == second > first, await ctx.memory.caller.get("k")])
        await ctx.memory.delete("k")
        seen.append(await ctx.memory.get("k"))
        await ctx.memory.caller.set("wide", 1.5)

    def plain_skill(ctx: SyncContext) -> None:
        seen.append(ctx.memory.get("k"))
        first = ctx.memory.set("k", {"a": [1, None, "ü"]})
        second = ctx.memory.set("k", (1, 2), if_version=first)
        value, version = ctx.memory.get("k") or (None, 0)
        seen.extend([value, version == second > first, ctx.memory.caller.get("k")])
        ctx.memory.delete("k")
        seen.append(ctx.memory.get("k"))
        ctx.memory.caller.set("wide", 1.5)

    ran = await run(agent_of(plain_skill if plain else skill), "hi")
    assert ran.state is S.COMPLETED, ran.message
    assert seen == [None, [1, 2], True, None, None]
    assert (ran.memory, ran.caller_memory) == ({}, {"wide": 1.5})


async def test_a_test_gives_a_memory_and_gets_it_back() -> None:
    ran = await run(agent_of(remember), "new", memory={"said": "old"}, caller_memory={"said": "wide", "n": [1]})
    assert ran.text == "old wide"
    assert ran.memory == {"said": "new"}
    assert ran.caller_memory == {"said": "new", "n": [1]}
    again = await run(agent_of(remember), "", memory=ran.memory)
    assert again.text == "new -"


async def test_pages_of_a_list_are_bounded_and_follow_each_other() -> None:
    pages: list[Any] = []

    async def skill(ctx: Context) -> None:
        for prefix, limit in (("n/", 4), ("large/", 100), ("none", 5)):
            cursor: str | None = None
            while True:
                page = await ctx.memory.list(prefix, limit=limit, cursor=cursor)
                pages.append([item.key for item in page.items])
                assert all(item.value == given[item.key] for item in page.items)
                if (cursor := page.cursor) is None:
                    break

    given = {f"n/{number}": number for number in range(8)} | {f"large/{number}": "x" * 60_000 for number in range(10)}
    await run(agent_of(skill), "hi", memory=given)
    numbers, large = [f"n/{number}" for number in range(8)], [f"large/{number}" for number in range(10)]
    assert pages == [numbers[:4], numbers[4:], large[:8], large[8:], []]


async def test_an_old_version_is_refused() -> None:
    async def skill(ctx: Context) -> str:
        said = []
        for memory in (ctx.memory, ctx.memory.caller):
            for write in (
                lambda m: m.set("k", 2, if_version=0),
                lambda m: m.set("none", 2, if_version=3),
                lambda m: m.delete("k", if_version=9),
            ):
                try:
                    await write(memory)
                except MemoryChanged as changed:
                    said.append(str(changed))
        return "\n".join(said)

    ran = await run(agent_of(skill), "hi", memory={"k": 1}, caller_memory={"k": 1})
    assert ran.text.count("by now: get it again, then decide anew") == 6
    assert (ran.memory, ran.caller_memory) == ({"k": 1}, {"k": 1})


async def test_a_memory_that_is_full_names_the_limit_and_the_fix() -> None:
    async def skill(ctx: Context) -> str:
        said = []
        value = "x" * (VALUE_BYTES_MAX - 2)
        for memory, most in ((ctx.memory, CONVERSATION_BYTES_MAX), (ctx.memory.caller, CALLER_BYTES_MAX)):
            for number in range(most // VALUE_BYTES_MAX + 1):
                try:
                    await memory.set(f"{number}", value)
                except MemoryFull as full:
                    said.append((number, str(full)))
                    break
            with pytest.raises(MemoryFull, match="may have 65536: split it"):
                await memory.set("k", value + "x")
        return repr(said)

    ran = await run(agent_of(skill), "hi")
    assert ran.text == repr(
        [
            (number, f"the memory of {whose} would have {needed} bytes, and may have {most}: {fix}")
            for number, whose, needed, most in (
                (15, "this conversation", 16 * VALUE_BYTES_MAX + 22, CONVERSATION_BYTES_MAX),
                (159, "the caller", 160 * VALUE_BYTES_MAX + 370, CALLER_BYTES_MAX),
            )
            for fix in ["delete what is not needed any more, or give values a ttl_s"]
        ]
    )


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda m: m.get(""), "key=''"),
        (lambda m: m.get(7), "key must be"),
        (lambda m: m.get("a\0"), "key must not"),
        (lambda m: m.set("ü" * 600, 1), "1024 bytes"),
        (lambda m: m.set("k", object()), "JSON"),
        (lambda m: m.set("k", float("nan")), "value"),
        (lambda m: m.set("k", 1, ttl_s=0), "ttl_s=0: must be more than 0"),
        (lambda m: m.set("k", 1, ttl_s="2h"), "ttl_s must be a number"),
        (lambda m: m.set("k", 1, if_version="1"), "if_version must be"),
        (lambda m: m.list(limit=0), "limit=0: must be from 1 to 1000"),
        (lambda m: m.list(7), "prefix must be"),
        (lambda m: m.list(cursor=""), "cursor=''"),
    ],
)
async def test_a_wrong_argument_is_named(use: Callable[[Any], Any], text: str) -> None:
    async def skill(ctx: Context) -> str:
        with pytest.raises((TypeError, ValueError)) as caught:
            await use(ctx.memory)
        return str(caught.value)

    ran = await run(agent_of(skill), "hi")
    assert text in ran.text
    assert ran.steps == []


# -- whose it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
async def test_memory_is_a_conversation_s_a_caller_s_or_everybody_s(shared: bool) -> None:
    async with house(agent_of(remember, memory="shared" if shared else "caller")) as h:

        async def ask(text: str, context_id: str, **around: Any) -> str:
            return text_of(await h.send(text, context_id=context_id, around=around))

        assert await ask("one", "a") == "- -"
        assert await ask("two", "a") == "one one"
        assert await ask("three", "b") == "- two"
        assert await ask("four", "a", owner="bob") == ("- three" if shared else "- -")
        assert await ask("five", "a") == ("two four" if shared else "two three")


async def test_a_wide_scope_may_be_everybody_s_though_the_memory_is_a_caller_s() -> None:
    async def leave(ctx: Context) -> str:
        space = await run_of(ctx).state("memory", wide=True, shared=True)
        assert space is not None
        found = await space.get_entries(["last"])
        await space.write_entries(puts=[StatePut("last", ctx.text.encode())])
        return found[0].value.decode() if found else "-"

    async with house(agent_of(leave)) as h:
        told = [text_of(await h.send(text, context_id=text, around={"owner": text})) for text in ("ada", "bob", "eve")]
    assert told == ["-", "ada", "bob"]


def test_an_unknown_reach_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 'caller' or 'shared'"):
        Agent("agent", memory="all")  # type: ignore[arg-type]


async def test_an_agent_that_makes_no_task_has_no_memory_and_one_that_may_makes_one() -> None:
    async def skill(ctx: Context) -> str:
        with pytest.raises(RuntimeError) as caught:
            await ctx.memory.get("k")
        return str(caught.value)

    async with house(agent_of(skill, direct=True)) as h:
        said = (await h.engine.operations.call(call(sending("hi")))).text
        assert said == "agent 'agent' is declared direct: it cannot record steps; leave direct=True out"
    async with house(agent_of(remember, direct="auto")) as h:
        assert text_of(await h.send("one", context_id="talk")) == "- -"
        assert text_of(await h.send("two", context_id="talk")) == "one one"


async def test_a_value_is_forgotten_after_its_time() -> None:
    async def skill(ctx: Context) -> str:
        found = await ctx.memory.get("k")
        if found is None:
            await ctx.memory.set("k", "v", ttl_s=60)
        return str(found and found.value)

    async with house(agent_of(skill)) as h:
        assert text_of(await h.send(context_id="talk")) == "None"
        h.clock.ms += 59_999
        assert text_of(await h.send(context_id="talk")) == "v"
        h.clock.ms += 1
        assert text_of(await h.send(context_id="talk")) == "None"


# -- after a crash -----------------------------------------------------------------------------------------------------


class Hang:
    """A place at which the agent hangs, until it is `let` go on."""

    def __init__(self) -> None:
        self.let = False
        self.reached = asyncio.Event()

    async def here(self) -> None:
        if not self.let:
            self.reached.set()
            await asyncio.Event().wait()


async def crash(agent: Agent, url: str, hang: Hang) -> str:
    """Begin a task in the conversation TALK, and end the server as by a crash where its agent hangs."""
    async with house(agent, url=url, crashes=True) as h:
        task_id = await h.begin(context_id="talk")
        async with asyncio.timeout(60):
            await hang.reached.wait()
    hang.let = True
    return task_id


async def test_a_later_run_reads_what_the_first_one_read_and_writes_nothing_again(tmp_path: Path) -> None:
    hang, seen, url = Hang(), [], f"sqlite:///{tmp_path}/store"

    async def skill(ctx: Context) -> None:
        await ctx.step("begin", str)  # so that all words before are committed
        found = await ctx.memory.get("n")
        listed = await ctx.memory.list()
        version = await ctx.memory.set("n", 1 if found is None else found.value + 1)
        await ctx.memory.delete("gone")
        seen.append((found, listed, version))
        await hang.here()
        seen.append(await ctx.memory.get("n"))

    agent = agent_of(skill, restartable=True)
    async with house(agent, url=url) as h:
        hang.let = True
        await h.send(context_id="talk")
        hang.let = False
        seen.clear()
    await put(url, gone=True)
    task_id = await crash(agent, url, hang)
    async with house(agent, url=url) as h:
        await h.reach(task_id, S.COMPLETED)
        names = [logged.event.name for logged in await h.log(task_id) if isinstance(logged.event, Stepped)]
        assert await stored(h) == {"n": 2}
    assert seen[0] == seen[1]
    assert seen[0][0].value == 1
    assert seen[2].value == 2
    assert names == ["begin", "$memory.get", "$memory.list", "$memory.set", "$memory.delete", "$memory.get"]


class WatchedState:
    """The state of a store. It notes the steps that the log of a task holds when that writes."""

    def __init__(self, store: Store) -> None:
        self.steps: list[list[str]] = []
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.state, name)

    async def write_entries(self, write: StateWrite) -> int:
        assert write.guard is not None
        log = await self._store.read(write.guard.task_id, 0, 1 << 30)
        self.steps.append([logged.event.name for logged in log if isinstance(logged.event, Stepped)])
        return await self._store.state.write_entries(write)


class WatchedStore:
    def __init__(self, store: Store) -> None:
        self.state = WatchedState(store)
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_a_write_comes_after_the_reads_that_it_may_depend_on_are_committed() -> None:
    watched: list[WatchedStore] = []

    def watch(store: Store) -> Any:
        watched.append(WatchedStore(store))
        return watched[0]

    async def skill(ctx: Context) -> None:
        await ctx.step("begin", str)
        await ctx.memory.get("n")
        await ctx.memory.set("n", 1)
        await ctx.memory.delete("m")

    async with house(agent_of(skill), seen_as=watch) as h:
        await h.send()
    first, second = watched[0].state.steps
    assert first == ["begin", "$memory.get"]
    assert second == [*first, "$memory.set"]


async def test_what_others_wrote_meanwhile_is_neither_read_nor_overwritten(tmp_path: Path) -> None:
    hang, seen, url = Hang(), [], f"sqlite:///{tmp_path}/store"

    async def skill(ctx: Context) -> None:
        found = await ctx.memory.get("n")
        await ctx.memory.set("n", 1)
        await ctx.memory.delete("m")
        seen.append(found)
        await hang.here()

    agent = agent_of(skill, restartable=True)
    task_id = await crash(agent, url, hang)
    await put(url, n="other", m="other")
    async with house(agent, url=url) as h:
        await h.reach(task_id, S.COMPLETED)
        assert await stored(h) == {"n": "other", "m": "other"}
    assert seen == [None, None]


async def test_a_refusal_is_the_same_in_every_run(tmp_path: Path) -> None:
    hang, seen, url = Hang(), [], f"sqlite:///{tmp_path}/store"

    async def skill(ctx: Context) -> None:
        with pytest.raises(MemoryChanged) as caught:
            await ctx.memory.set("n", 1, if_version=7)
        seen.append(str(caught.value))
        await ctx.step("nothing", str)
        await hang.here()

    agent = agent_of(skill)
    task_id = await crash(agent, url, hang)
    await put(url, n="other")
    async with house(agent, url=url) as h:
        await h.reach(task_id, S.COMPLETED)
    assert seen == ["memory 'n' has version 0 by now: get it again, then decide anew"] * 2


async def test_a_step_is_executed_with_what_a_later_run_gets_again(tmp_path: Path) -> None:
    hang, seen, url = Hang(), [], f"sqlite:///{tmp_path}/store"

    async def order(number: UUID) -> None:
        seen.append(number)
        await hang.here()

    async def skill(ctx: Context) -> None:
        await ctx.step("order", order, await ctx.uuid())

    agent = agent_of(skill)
    task_id = await crash(agent, url, hang)
    async with house(agent, url=url) as h:
        await h.reach(task_id, S.COMPLETED)
    assert len(seen) == 2
    assert seen[0] == seen[1]


async def test_branches_remember_at_once(tmp_path: Path) -> None:
    hang, url = Hang(), f"sqlite:///{tmp_path}/store"

    async def skill(ctx: Context) -> None:
        async def branch(name: str) -> None:
            for number in range(3):
                await ctx.memory.set(f"{name}/{number}", number)
                found = await ctx.memory.get(f"{name}/{number}")
                assert found is not None
                assert found.value == number

        await asyncio.gather(*(branch(name) for name in "abcde"))
        await hang.here()

    agent = agent_of(skill, restartable=True)
    task_id = await crash(agent, url, hang)
    async with house(agent, url=url) as h:
        await h.reach(task_id, S.COMPLETED)
        assert await stored(h) == {f"{name}/{number}": number for name in "abcde" for number in range(3)}


async def test_memory_that_ends_with_its_conversation_is_gone() -> None:
    async with house(agent_of(remember)) as h:
        record = await h.send("one", context_id="talk")
        await h.store.delete((record.head.id,))
        assert text_of(await h.send("two", context_id="talk")) == "- one"
