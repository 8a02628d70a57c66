"""Several upstreams behind one card: which of them has a message, and that no other one has it, too."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from dragoman import Agent, Context
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.auth.operator_token import read_token
from dragoman.cli.loader import load_agents
from dragoman.client import ApiKey, Connection, Retries, connect
from dragoman.config import Config, load_table
from dragoman.engine.api import CheckResult
from dragoman.model.errors import A2AError, AgentOffline, Unavailable
from dragoman.model.message import Message
from dragoman.model.task import Task, TaskHead, TaskState
from dragoman.server import serving
from tests.client.proxy import Fault, Proxy, before
from tests.kit.agents import echoing
from tests.kit.loopback import listening
from tests.kit.places import asked
from tests.kit.values import head, text_of
from tests.kit.waiting import no_hang, until
from tests.ports import kept_port
from tests.systems.test_upstream_tree import Front

DEADLINE_S = 60.0
CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.1, cancel_grace_s=2.0, keepalive_s=0.5)
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
AWAY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Upstream(Struct):
    """A server of the pool: its ledger of what it was asked, by context, and the proxy before it."""

    name: str
    ledger: list[tuple[str, str]] = field(default_factory=list)
    proxy: Proxy | None = None
    url: str = ""
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.ledger]

    def agent(self) -> Agent:
        agent = Agent("work", description=f"Works at {self.name}", version="1.0.0")

        @agent.skill("do")
        async def do(ctx: Context) -> AsyncIterator[object]:
            """Does it."""
            self.ledger.append((ctx.text, ctx.context_id))
            if ctx.text.startswith("ask"):
                yield f"{self.name} {await ctx.ask('Which?')}"
            elif ctx.text.startswith("wait"):
                yield "begun"
                await self.gate.wait()
            else:
                yield f"{self.name} {ctx.text}"

        return agent


@asynccontextmanager
async def upstreams(*names: str) -> AsyncIterator[list[Upstream]]:
    """Servers with these names, each behind a proxy."""
    async with AsyncExitStack() as stack, no_hang():
        found = []
        for name in names:
            one = Upstream(name)
            own = await stack.enter_async_context(serving(CONFIG, [one.agent()]))
            one.proxy = await stack.enter_async_context(before(own))
            one.url = f"{one.proxy.url}/agents/work"
            found.append(one)
        yield found


def pooled(members: Sequence[Upstream | str], text: str = "", **keys: Any) -> UpstreamAgent:
    """The agent of a table with these members."""
    tables = [
        {"url": f"a2a:{each}" if isinstance(each, str) else f"a2a:{each.url}"}
        | ({} if isinstance(each, str) else {"name": each.name})
        for each in members
    ]
    table: dict[str, Any] = {"id": "partner", "pool": tables, "pause_s": 0.1, **keys}
    (agent,) = load_agents(load_table("d.toml", {"agents": [table]}, {}, {}).agents, (), None)
    assert isinstance(agent, UpstreamAgent)
    return agent


@asynccontextmanager
async def fronted(agent: UpstreamAgent, config: Config = CONFIG) -> AsyncIterator[Connection]:
    async with serving(config, [agent]) as url, connect(f"{url}/agents/partner", retries=Retries(attempts=1)) as made:
        yield made


def reason(task: Task) -> str:
    message = task.status.message
    assert message is not None
    assert message.metadata is not None
    return str(message.metadata["reason"])


ALONE = {"dedupes": False}


@pytest.mark.parametrize("refusal", [BUSY, AWAY, None], ids=["429", "503", "no connection"])
async def test_a_message_that_was_not_taken_goes_to_the_next_member(refusal: bytes | None) -> None:
    async with upstreams("a", "b") as (a, b):
        assert a.proxy is not None
        async with fronted(pooled([a if refusal else f"http://127.0.0.1:{kept_port()}/", b], **ALONE)) as at:
            a.proxy.choose = lambda request: Fault(refuses=refusal) if refusal and b"POST" in request[:4] else None
            task = await asked(at, "hello")
            assert (text_of(task), a.texts, b.texts) == ("b hello", [], ["hello"])


async def test_a_member_other_than_the_first_is_called_by_its_own_terms() -> None:
    async with upstreams("a", "b") as (a, b):
        assert b.proxy is not None
        tables = [
            {"name": "a", "url": f"a2a:{a.url}", "order": 1},
            {"name": "b", "url": f"a2a:{b.url}", "order": 0, "credentials": {"forward": True}},
        ]
        agent = pooled([], pool=tables)
        async with serving(CONFIG, [agent]) as url, connect(f"{url}/agents/partner", credentials=ApiKey("k")) as at:
            b.proxy.choose = lambda request: Fault(refuses=REFUSED) if b"POST" in request[:4] else None
            assert (await asked(at, "hello")).status.state is TaskState.AUTH_REQUIRED


@pytest.mark.parametrize("fault", [Fault(cut=0), Fault(stall=0)], ids=["lost", "hangs"])
async def test_a_message_that_may_have_been_taken_goes_to_nobody_else(fault: Fault, caplog: Any) -> None:
    async with upstreams("a", "b") as (a, b):
        assert a.proxy is not None
        async with fronted(pooled([a, b], answer_s=0.5, **ALONE)) as at:
            a.proxy.choose = lambda request: fault if b"SendStreamingMessage" in request else None
            task = await asked(at, "hello")
            assert (task.status.state, reason(task)) == (TaskState.FAILED, "upstream_uncertain")
            assert (a.texts, b.texts) == (["hello"], [])
            assert "partner/a" in caplog.text
            assert a.url not in str(task)
            assert "partner/a" not in str(task)


@pytest.mark.parametrize("offline", ["error", "queue"])
@pytest.mark.parametrize("status", [b"502 Bad Gateway", b"503 Service Unavailable", b"504 Gateway Timeout"])
async def test_the_word_of_a_proxy_is_no_proof_that_nothing_was_taken(status: bytes, offline: str) -> None:
    async with upstreams("a", "b") as (a, b):
        assert a.proxy is not None
        async with fronted(pooled([a, b], strategy="round_robin", offline=offline, **ALONE)) as at:
            gave_up = Fault(
                refuses=b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", late=True
            )
            faults = [gave_up]
            a.proxy.choose = lambda request: faults.pop() if faults and b"SendStreaming" in request else None
            task = await asked(at, "hello")
            assert (task.status.state, reason(task)) == (TaskState.FAILED, "upstream_uncertain")
            assert (a.texts, b.texts) == (["hello"], [])


async def test_a_member_that_recognises_repeats_is_asked_again() -> None:
    async with upstreams("a", "b") as (a, b):
        assert a.proxy is not None
        async with fronted(pooled([a, b])) as at:
            faults = [Fault(cut=0)]
            a.proxy.choose = lambda request: faults.pop() if faults and b"SendStreaming" in request else None
            task = await asked(at, "hello")
            assert (text_of(task), a.texts, b.texts, faults) == ("a hello", ["hello"], [], [])


async def test_another_member_is_asked_only_if_all_have_one_memory() -> None:
    async with upstreams("a", "b") as (a, b):
        assert a.proxy is not None
        async with fronted(pooled([a, b], shared_dedupe=True)) as at:
            a.proxy.choose = lambda request: Fault(cut=0) if b"SendStreaming" in request else None
            task = await asked(at, "hello")
            assert (text_of(task), a.texts, b.texts) == ("b hello", ["hello"], ["hello"])


@pytest.mark.parametrize("affinity", ["strict", "prefer"])
async def test_a_conversation_stays_with_its_member_also_after_a_restart(tmp_path: Path, affinity: str) -> None:
    kept = replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}")
    async with upstreams("a", "b", "c") as found:
        contexts = [f"conversation {n}" for n in range(6)]
        first: dict[str, str] = {}
        for turn in range(3):
            async with fronted(pooled(found, strategy="round_robin", affinity=affinity), kept) as at:
                for context in contexts:
                    member = text_of(await asked(at, "hello", context_id=context)).split()[0]
                    assert first.setdefault(context, member) == member, turn
        assert sorted(first.values()) == ["a", "a", "b", "b", "c", "c"]
        for one in found:
            assert len({context for _, context in one.ledger}) == 2


async def test_first_tasks_of_a_conversation_that_begin_at_once_have_one_member(tmp_path: Path) -> None:
    kept = replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}")
    async with upstreams("a", "b") as found, fronted(pooled(found, strategy="round_robin"), kept) as at:
        for n in range(4):
            tasks = await asyncio.gather(*(asked(at, "hello", context_id=f"conversation {n}") for _ in range(3)))
            assert len({text_of(task) for task in tasks}) == 1
        assert {text for one in found for text in one.texts} == {"hello"}
        assert all(one.texts for one in found)


class SlowLog:
    """A log that had no notes when it was read, and answers when it is `released`."""

    def __init__(self, released: asyncio.Event) -> None:
        self._released = released

    async def note(self, head: TaskHead) -> dict[str, str]:
        """Nothing."""
        await self._released.wait()
        return {}


@pytest.mark.parametrize("affinity", ["strict", "prefer"])
async def test_a_slow_read_of_the_log_leaves_a_conversation_at_its_member(affinity: str) -> None:
    urls = [f"http://{name}.example/" for name in "abc"]
    pool = pooled(urls, strategy="round_robin", affinity=affinity).pool
    log: Any = SharedLog()
    first = await pool.place_task(head("first", context_id="shared"), log)
    assert first is not None
    released = asyncio.Event()
    slow_log: Any = SlowLog(released)
    slow = asyncio.create_task(pool.place_task(head("slow", context_id="shared"), slow_log))
    await asyncio.sleep(0)
    log.notes.append(first.note)
    later = await pool.place_task(head("later", context_id="shared"), log)
    released.set()
    last = await slow
    assert later is not None
    assert last is not None
    assert last.route is later.route is first.route


class SharedLog:
    """The notes of a conversation's tasks, the newest last, as all replicas read them."""

    def __init__(self) -> None:
        self.notes: list[dict[str, str]] = []

    async def note(self, head: TaskHead) -> dict[str, str]:
        """The newest."""
        return self.notes[-1] if self.notes else {}


@pytest.mark.parametrize("affinity", ["strict", "prefer"])
async def test_replicas_that_began_a_conversation_at_once_agree_on_its_next_tasks(affinity: str) -> None:
    urls = [f"http://{name}.example/" for name in "abc"]
    pools = [pooled(urls, strategy="round_robin", affinity=affinity).pool for _ in range(2)]
    pools[1].choose_route(head("other", context_id="other"), "", ())  # its turn is another
    log: Any = SharedLog()
    first = [await pool.place_task(head(f"first {n}", context_id="shared"), log) for n, pool in enumerate(pools)]
    assert len({place.route.label for place in first if place is not None}) == 2
    for pool, place in zip(pools, first, strict=True):
        assert place is not None
        log.notes.append(place.note)
        pool.hold(head("first", context_id="shared"), place.route)
    for n in range(4):
        place = await pools[n % 2].place_task(head(f"later {n}", context_id="shared"), log)
        assert place is not None
        assert first[1] is not None
        assert place.route.label == first[1].route.label
        log.notes.append(place.note)


async def test_a_question_and_a_cancel_go_to_the_member_that_has_the_task(tmp_path: Path) -> None:
    kept = replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}")
    async with upstreams("a", "b") as (a, b):
        keys = {"strategy": "round_robin"}
        async with fronted(pooled([a, b], **keys), kept) as at:
            tasks = [await asked(at, f"ask {n}") for n in range(4)]
            waiting = [await asked(at, f"wait {n}", return_immediately=True) for n in range(2)]
            await until(lambda: len(a.texts) + len(b.texts) == 6)
        async with fronted(pooled([b, a], **keys), kept) as at:
            for n, task in enumerate(tasks):
                answered = await asked(at, "this one", task_id=task.id)
                assert text_of(answered) == f"{'ab'[n % 2]} this one"
            for task in waiting:
                assert (await at.cancel(task.id)).status.state is TaskState.CANCELED
            assert len(a.texts) == len(b.texts) == 3


@asynccontextmanager
async def watched(agent: UpstreamAgent, store: str) -> AsyncIterator[Front]:
    """The server in front, with an operator."""
    again = Retries(attempts=1)
    async with (
        serving(replace(CONFIG, store=store), [agent]) as url,
        connect(f"{url}/agents/partner", retries=again) as caller,
        aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {read_token(store, 0)}"}) as http,
    ):
        yield Front(caller, http)


async def listed(site: Front) -> list[tuple[str, int]]:
    async with site.http.get("/admin/v1/upstreams") as answer:
        return [(line["member"], line["refused"]) for line in (await answer.json())["upstreams"]]


async def test_a_conversation_whose_member_is_gone_is_offline_or_moves(tmp_path: Path) -> None:
    async with upstreams("a", "b") as (a, b):
        for affinity in ("strict", "prefer"):
            agent = pooled([a, b], affinity=affinity, failures=1, pause_s=60.0)
            store = f"sqlite:///{tmp_path / affinity}.db"
            async with watched(agent, store) as site:
                at = site.caller
                assert a.proxy is not None
                context = (await asked(at, "first")).context_id
                a.proxy.choose = lambda request: Fault(refuses=AWAY)
                if affinity == "strict":
                    for error in (Unavailable, A2AError):
                        with pytest.raises(error) as raised:
                            await asked(at, "second", context_id=context)
                        assert a.url not in str(raised.value)
                    agent.pool.routes[0].health.record_failure()
                    with pytest.raises(AgentOffline):
                        await asked(at, "third", context_id=context)
                    assert text_of(await asked(at, "another")) == "b another"
                else:
                    task = await asked(at, "second", context_id=context)
                    assert text_of(task) == "b second"
                    tree = await site.tree(task.id)
                    assert (tree[1]["member"], tree[1]["history_at"]) == ("b", "a")
                    assert [(each["member"], each["reason"]) for each in tree[0]["attempts"]] == [
                        ("a", "upstream_busy")
                    ]
                    assert await listed(site) == [("a", 1), ("b", 0)]
                a.proxy.choose = lambda request: None
        assert "third" not in a.texts + b.texts


@pytest.mark.parametrize("affinity", ["strict", "prefer"])
async def test_a_conversation_whose_member_is_found_gone_at_the_send_is_offline(affinity: str) -> None:
    async with upstreams("a", "b") as (a, b), AsyncExitStack() as stack:
        assert a.proxy is not None
        way = await stack.enter_async_context(before(a.proxy.url))
        agent = pooled([f"{way.url}/agents/work", b], affinity=affinity, failures=9, retry_wait_s=0.0)
        async with fronted(agent) as at:
            context = (await asked(at, "first")).context_id
            assert a.texts == ["first"]
            await stack.aclose()
            if affinity == "prefer":
                assert text_of(await asked(at, "second", context_id=context)) == "b second"
                return
            for _ in range(2):
                with pytest.raises(AgentOffline, match="the server that has the conversation") as raised:
                    await asked(at, "second", context_id=context)
                assert way.url not in str(raised.value)
            assert text_of(await asked(at, "another")) == "b another"
            assert (a.texts, b.texts) == (["first"], ["another"])


async def test_the_card_is_that_of_the_first_that_can_be_reached_and_a_fault_degrades() -> None:
    async with upstreams("a", "b") as (a, b):
        agent = pooled([f"http://127.0.0.1:{kept_port()}/", b, a])
        async with fronted(agent) as at:
            assert at.card is not None
            assert at.card.whole["description"] == "Works at b"
            assert (agent.degraded or "").startswith("1 of its 3 upstreams: ")


async def test_tasks_wait_for_whichever_member_comes_back_first() -> None:
    async with upstreams("a", "b") as (a, b):
        agent = pooled([a, b], offline="queue", failures=1)
        async with fronted(agent) as at:
            for one in (a, b):
                assert one.proxy is not None
                one.proxy.choose = lambda request: Fault(refuses=AWAY)
            task = await asked(at, "hello", return_immediately=True)
            await until(
                lambda: not any(route.endpoint.fault is None and not route.faulty for route in agent.pool.routes)
            )
            assert (await at.get(task.id)).status.state is TaskState.SUBMITTED
            assert b.proxy is not None
            b.proxy.choose = lambda request: None
            async with asyncio.timeout(DEADLINE_S):
                while (task := await at.get(task.id)).status.state is not TaskState.COMPLETED:
                    await asyncio.sleep(0.02)
            assert (text_of(task), a.texts) == ("b hello", [])


async def test_a_check_says_where_members_differ() -> None:
    async with upstreams("a", "b") as (a, b):
        other = Agent("other", description="Another", input_modes=["text/plain", "image/png"])

        @other.skill("paint")
        async def paint(ctx: Context) -> str:
            """Paints."""
            return ""

        async with serving(CONFIG, [other]) as url:
            found: list[CheckResult] = [each async for each in pooled([a, b, f"{url}/agents/other"]).check()]
    told = {each.what: each.ok for each in found}
    name = next(what for what in told if "other skills" in what).partition(":")[0]
    assert told[f"{name}: it has other skills (paint instead of do) than a"] is False
    assert "a: it answers, and lets this server in" in told
    assert not [what for what in told if what.startswith("b: it has other")]


async def test_a_conversation_of_messages_stays_with_its_member_although_no_log_has_it() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        urls = []
        for name in ("a", "b", "c"):
            agent = echoing("work", skill=name, direct=True)
            urls.append(f"{await stack.enter_async_context(serving(CONFIG, [agent]))}/agents/work")
        contexts = [f"conversation {n}" for n in range(12)]
        seen: list[list[str]] = []
        for _ in range(2):
            pool = pooled(urls, strategy="round_robin", direct="auto")
            async with fronted(pool) as at:
                for context in contexts:
                    assert isinstance(await at.send("hello", context_id=context), Message)
                seen.append([pool.pool._held["anonymous", context] for context in contexts])  # noqa: SLF001
        assert seen[0] == seen[1]
        assert len(set(seen[0])) > 1


async def test_an_answer_that_becomes_a_task_has_its_member_in_the_log(tmp_path: Path) -> None:
    kept = replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}")
    async with upstreams("a", "b") as (a, b):
        keys = {"direct": "auto"}
        async with fronted(pooled([a, b], **keys), kept) as at:
            task = await asked(at, "ask once")
        async with fronted(pooled([b, a], **keys), kept) as at:
            assert text_of(await asked(at, "so", task_id=task.id)) == "a so"
        assert b.texts == []


async def test_a_probe_of_a_member_without_a_card_sees_whether_somebody_is_there() -> None:
    """With a `dialect` it needs none."""
    port = kept_port()
    async with upstreams("a", "b") as (a, b):
        for one in (a, b):
            assert one.proxy is not None
            one.proxy.choose = lambda request: Fault(refuses=ABSENT) if request.startswith(b"GET") else None
        assert a.proxy is not None
        agent = pooled([f"http://127.0.0.1:{port}/agents/work", b], dialect="1.0", probe_s=0.1)
        async with fronted(agent) as at:
            gone, there = agent.pool.routes
            await until(lambda: gone.fault is not None)
            assert there.fault is None
            assert text_of(await asked(at, "hello")) == "b hello"
            async with listening(a.proxy.serve, port=port):
                await until(lambda: gone.fault is None)
                assert text_of(await asked(at, "again")) == "a again"
