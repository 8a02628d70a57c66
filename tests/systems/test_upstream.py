"""Agents of other servers behind cards of this one: two servers in one process, and the six dialects between them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from dragoman import Agent, Context
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.client import ApiKey, ClientCredentials, Connection, Retries, connect
from dragoman.config import Config, Upstream, UpstreamCredentials
from dragoman.engine.api import Runner
from dragoman.model.card import Profile
from dragoman.model.errors import Unavailable
from dragoman.model.message import Message, Part
from dragoman.model.task import TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate
from dragoman.server import serving
from tests.client.proxy import Fault, before
from tests.kit.places import asked
from tests.kit.values import text_of, told_by
from tests.kit.waiting import until
from tests.kit.web import web_site
from tests.ports import kept_port
from tests.spec.agents import OPTIONAL, Gates, house

DEADLINE_S = 60.0
CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.1, cancel_grace_s=2.0, keepalive_s=0.5)

AT = {
    "1.0": "/agents/script",
    "0.3": "/agents/script",
    "beeos": "/script",
    "kaos": "",
    "evoai": "/api/v1/a2a/script",
    "protoagent": "/a2a",
}
"""Where our own server speaks each dialect."""

DIALECTS = tuple(AT)


@pytest.fixture
async def upstream(gates: Gates) -> AsyncIterator[str]:
    """The base URL of the server behind."""
    async with serving(CONFIG, house(gates)) as url:
        yield url


def partner(url: str, **keys: Any) -> UpstreamAgent:
    """An agent `partner` whose upstream is at `url`; what is no key of an upstream's table is for the agent."""
    if keys.pop("forwards", False):
        keys["credentials"] = UpstreamCredentials(forward=True)
    said = {name: keys.pop(name) for name in list(keys) if name in Upstream.__struct_fields__}
    profile = Profile(id="partner", name="Partner", description="Ours", version="0.1", skills=())
    return UpstreamAgent(profile, Upstream(url=url, **said), **keys)


@asynccontextmanager
async def fronted(agent: Runner, config: Config = CONFIG, *, attempts: int = 4) -> AsyncIterator[Connection]:
    """A client of the server in front, which makes a call so often."""
    again = Retries(attempts=attempts)
    async with serving(config, [agent]) as url, connect(f"{url}/agents/partner", retries=again) as connection:
        yield connection


# -- each dialect ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_send_is_answered_in_every_dialect(upstream: str, dialect: str) -> None:
    async with fronted(partner(upstream + AT[dialect], dialect=dialect)) as connection:
        task = await asked(connection, "say it again")
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "say it again")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_question_is_passed_on_and_so_is_its_answer(upstream: str, dialect: str) -> None:
    async with fronted(partner(upstream + AT[dialect], dialect=dialect)) as connection:
        task = await asked(connection, "ask twice")
        assert (task.status.state, told_by(task)) == (TaskState.INPUT_REQUIRED, "Which?")
        task = await asked(connection, "red, ", task_id=task.id)
        assert (task.status.state, told_by(task)) == (TaskState.INPUT_REQUIRED, "Sure?")
        task = await asked(connection, "yes", task_id=task.id)
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "red, yes")


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "protoagent"])
async def test_auth_required_is_passed_on(upstream: str, dialect: str) -> None:
    async with fronted(partner(upstream + AT[dialect], dialect=dialect)) as connection:
        task = await asked(connection, "login")
        assert (task.status.state, told_by(task)) == (TaskState.AUTH_REQUIRED, "Who are you?")
        task = await asked(connection, "me", task_id=task.id)
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "in")


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "evoai", "protoagent"])
async def test_chunks_and_progress_come_as_they_are_made(upstream: str, gates: Gates, dialect: str) -> None:
    async with fronted(partner(upstream + AT[dialect], dialect=dialect)) as connection:
        waits = f"g-{dialect}"
        async with asyncio.timeout(DEADLINE_S):
            async for update in connection.stream(f"wait {waits}"):
                match update:
                    case StatusUpdate(status=status) if status.message is not None and not gates.open[waits].is_set():
                        assert status.message.text == "waiting"
                        gates.open[waits].set()  # what was said has come before there was any more
                    case _:
                        pass
        assert gates.open[waits].is_set()


async def test_chunks_are_chunks_with_the_ids_of_the_upstream(upstream: str) -> None:
    async with fronted(partner(upstream + AT["1.0"])) as connection:
        chunks = [u async for u in connection.stream("chunks 20") if isinstance(u, ArtifactUpdate)]
        text = "".join(part.text or "" for chunk in chunks for part in chunk.artifact.parts)
        assert text == "".join(f"{number} " for number in range(20))
        assert len({chunk.artifact.artifact_id for chunk in chunks}) == 1


async def test_progress_usage_and_several_artifacts_pass_through(upstream: str) -> None:
    async with fronted(partner(upstream + AT["1.0"])) as connection:
        updates = [update async for update in connection.stream("steps")]
        steps = [u.progress.current for u in updates if isinstance(u, StatusUpdate) and u.progress is not None]
        assert steps == [1, 2, 3]
        usage = [u.usage for u in updates if isinstance(u, StatusUpdate) and u.usage is not None]
        assert (usage[-1].input_tokens, usage[-1].output_tokens, usage[-1].total_tokens) == (3, 4, 7)
        names = {u.artifact.name for u in updates if isinstance(u, ArtifactUpdate)}
        assert names == {"first", "second"}


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "protoagent"])
async def test_files_go_both_ways(upstream: str, dialect: str) -> None:
    raw = bytes(range(256)) * 40
    async with fronted(partner(upstream + AT[dialect], dialect=dialect)) as connection:
        task = await asked(connection, [Part(text="here"), Part(raw=raw, media_type="image/png", filename="a.png")])
        files = [part for artifact in task.artifacts for part in artifact.parts if part.raw is not None]
        assert [(part.raw, part.media_type, part.filename) for part in files] == [(raw, "image/png", "a.png")]


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "evoai", "protoagent"])
async def test_a_cancel_reaches_the_upstream(upstream: str, gates: Gates, dialect: str) -> None:
    async with (
        fronted(partner(upstream + AT[dialect], dialect=dialect)) as connection,
        connect(upstream + AT["1.0"]) as behind,
    ):
        task = await asked(connection, f"wait c-{dialect}", return_immediately=True)
        await asyncio.wait_for(gates.reached[f"c-{dialect}"].wait(), DEADLINE_S)
        assert (await connection.cancel(task.id)).status.state is TaskState.CANCELED
        theirs = (await behind.list()).tasks[0] if dialect in ("1.0", "0.3") else None
        assert theirs is None or theirs.status.state is TaskState.CANCELED


async def test_a_cancel_of_a_task_that_waits_for_its_caller_reaches_the_upstream(upstream: str) -> None:
    async with fronted(partner(upstream + AT["1.0"])) as connection, connect(upstream + AT["1.0"]) as behind:
        task = await asked(connection, "ask")
        await connection.cancel(task.id)
        async with asyncio.timeout(DEADLINE_S):
            while (await behind.list()).tasks[0].status.state is not TaskState.CANCELED:
                await asyncio.sleep(0.02)


async def test_a_rejection_and_a_failure_come_with_their_words(upstream: str) -> None:
    async with fronted(partner(upstream + AT["1.0"])) as connection:
        task = await asked(connection, "reject")
        assert (task.status.state, told_by(task)) == (TaskState.REJECTED, "not this")
        task = await asked(connection, "fail")
        assert task.status.state is TaskState.FAILED
        assert told_by(task).startswith("The agent failed")


async def test_an_agent_that_answers_with_a_message_completes_the_task(upstream: str) -> None:
    async with fronted(partner(upstream + "/agents/direct")) as connection:
        task = await asked(connection, "hello")
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "hello")


async def test_an_agent_in_front_answers_as_the_one_behind(upstream: str) -> None:
    quick: dict[str, Any] = {"direct": "auto", "direct_wait_s": DEADLINE_S}
    async with fronted(partner(upstream + "/agents/direct", **quick)) as connection:
        for answer in (await connection.send("hello"), *[update async for update in connection.stream("hello")]):
            assert isinstance(answer, Message)
            assert answer.text == "hello"
    async with fronted(partner(upstream + AT["1.0"], **quick)) as connection:
        assert text_of(await asked(connection, "say it again")) == "say it again"
        task = await asked(connection, "reject")
        assert (task.status.state, told_by(task)) == (TaskState.REJECTED, "not this")
    async with fronted(partner("http://127.0.0.1:9", dialect="1.0", **quick), attempts=1) as connection:
        with pytest.raises(Unavailable):
            await asked(connection, "hello")


async def test_an_agent_without_streams_is_asked_again_until_it_is_done(upstream: str) -> None:
    async with fronted(partner(upstream + "/agents/mute")) as connection:
        task = await asked(connection, "hello")
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "hello")


async def test_what_the_upstream_refuses_is_rejected_with_its_words(upstream: str) -> None:
    async with fronted(partner(upstream + "/agents/script", dialect="1.0")) as connection:
        task = await asked(connection, "hello", skill=None, output_modes=["text/plain"])
        assert task.status.state is TaskState.COMPLETED
    async with fronted(partner(upstream + "/agents/plain", dialect="1.0", card="/agents/none.json")) as connection:
        task = await asked(connection, Part(data={"a": 1}))
        assert task.status.state is TaskState.REJECTED
        assert "does not accept application/json" in told_by(task)


async def test_a_conversation_goes_on_in_one_of_the_upstream(upstream: str, gates: Gates) -> None:
    memory = Agent("elephant")

    @memory.skill
    async def recall(ctx: Context) -> str:
        """Says what was said."""
        return " | ".join(message.text for message in await ctx.history())

    async with serving(CONFIG, [memory]) as url, fronted(partner(f"{url}/agents/elephant")) as connection:
        first = await asked(connection, "one", context_id="mine")
        second = await asked(connection, "two", context_id=first.context_id)
        assert text_of(second).startswith("one")
        other = await asked(connection, "three", context_id="yours")
        assert text_of(other) == ""


async def test_extensions_that_the_caller_declares_are_declared(upstream: str) -> None:
    async with (
        serving(CONFIG, [partner(upstream + AT["1.0"])]) as url,
        connect(f"{url}/agents/partner", extensions=[OPTIONAL]) as connection,
    ):
        task = await asked(connection, "extensions")
        assert task.artifacts[0].parts[0].data == {"extensions": [OPTIONAL]}


# -- the card ----------------------------------------------------------------------------------------------------------


async def test_its_card_is_ours_with_our_url(upstream: str) -> None:
    async with fronted(partner(upstream + AT["1.0"])) as connection:
        assert connection.card is not None
        card, url = connection.card.whole, connection.interface.url.partition("/agents")[0]
    assert (card["name"], card["description"], card["version"]) == ("script", "Does what it is told", "2.1.0")
    assert [skill["id"] for skill in card["skills"]] == ["do"]
    assert upstream not in str(card)
    assert card["supportedInterfaces"][0]["url"].startswith(url)
    assert card["provider"]["organization"] == "Example"


async def test_the_file_has_the_last_word_on_the_card(upstream: str) -> None:
    agent = partner(upstream + AT["1.0"], adjust=lambda profile: replace(profile, name="Our name"))
    async with fronted(agent) as connection:
        assert connection.card is not None
        assert (connection.card.name, connection.card.whole["version"]) == ("Our name", "2.1.0")


async def test_without_its_card_the_server_starts_and_the_card_comes_later(gates: Gates) -> None:
    port = kept_port()
    agent = partner(f"http://127.0.0.1:{port}/agents/script")
    async with serving(CONFIG, [agent]) as url, aiohttp.ClientSession() as http:
        async with http.get(f"{url}/ready") as answer:
            assert (answer.status, await answer.json()) == (
                200,
                {"status": "ready", "degraded": {"partner": "its card cannot be read"}},
            )
        where = f"{url}/agents/partner/.well-known/agent-card.json"
        async with http.get(where) as answer:
            assert (await answer.json())["name"] == "Partner"
            etag = answer.headers["etag"]
        async with serving(replace(CONFIG, port=port), house(gates)):
            await until(lambda: agent.profile.name == "script")
            async with http.get(where, headers={"if-none-match": etag}) as answer:
                assert (answer.status, (await answer.json())["name"]) == (200, "script")
            async with http.get(f"{url}/ready") as answer:
                assert await answer.json() == {"status": "ready"}


def answer(body: Any) -> bytes:
    """An answer of 200, as it is on the wire."""
    raw = json.dumps(body).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % len(raw) + raw


async def test_a_changed_card_is_read_again(upstream: str) -> None:
    card: dict[str, Any] = {
        "name": "first",
        "url": f"{upstream}/agents/script",
        "protocolVersion": "0.3.0",
        "skills": [],
    }
    async with before(upstream) as between:
        between.choose = lambda asked: Fault(refuses=answer(card)) if b"GET" in asked[:4] else None
        agent = partner(f"{between.url}/agents/script", card_s=0.1)
        async with fronted(agent):
            assert agent.profile.name == "first"
            card = {**card, "name": "second", "version": "7"}
            await until(lambda: (agent.profile.name, agent.profile.version) == ("second", "7"))


async def test_an_upstream_that_changes_its_dialect_goes_on_working(upstream: str) -> None:
    async with before(upstream) as between:
        agent = partner(f"{between.url}/agents/script")
        async with fronted(agent) as connection:
            assert text_of(await asked(connection, "hello")) == "hello"
            spoken = await agent.route.endpoint.connection()
            assert spoken is not None
            assert spoken.interface.dialect == "1.0"
            card: dict[str, Any] = {
                "name": "older",
                "url": f"{between.url}/agents/script",
                "protocolVersion": "0.3.0",
                "skills": [],
            }
            card["capabilities"] = {"streaming": True}
            unknown = answer({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "Method not found"}})

            def only_older(asked: bytes) -> Fault | None:
                if asked.startswith(b"GET"):
                    return Fault(refuses=answer(card))
                return Fault(refuses=unknown) if b'"SendStreamingMessage"' in asked else None

            between.choose = only_older
            assert text_of(await asked(connection, "once more")) == "once more"
            assert spoken.interface.dialect == "0.3"
            assert agent.profile.name == "older"


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_an_upstream_that_is_not_there_fails_the_task_in_words_without_its_address() -> None:
    async with fronted(partner("http://127.0.0.1:9/agents/none", failures=100)) as connection:
        task = await asked(connection, "hello", return_immediately=True)
        async for _ in connection.subscribe(task.id):
            pass
        task = await connection.get(task.id)
        assert task.status.state is TaskState.FAILED
        assert told_by(task) == "partner cannot be reached at present: send again in 5 s."
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "upstream_unreachable", "retryAfter": 5}


async def test_after_failures_sends_are_refused_with_a_time_until_one_gets_through(
    gates: Gates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.upstreams")
    port = kept_port()
    now = [0.0]
    agent = partner(f"http://127.0.0.1:{port}/agents/script", failures=2, pause_s=60.0, clock=lambda: now[0])
    async with fronted(agent) as connection:
        for _ in range(2):
            task = await asked(connection, "hello", return_immediately=True)
            async with asyncio.timeout(DEADLINE_S):
                while (await connection.get(task.id)).status.state is not TaskState.FAILED:
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as http:
            body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
            url = f"{connection.interface.url.removesuffix('/')}/message:send"
            async with http.post(url, json=body, headers={"A2A-Version": "1.0"}) as answer:
                assert (answer.status, answer.headers["retry-after"]) == (503, "11")  # the card is read before
        async with serving(replace(CONFIG, port=port), house(gates)):
            now[0] += 61.0
            assert (await asked(connection, "hello")).status.state is TaskState.COMPLETED
            assert agent.degraded is None
    breaker = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if "breaker" in getattr(record, "fields", {})
    ]
    assert breaker == [
        ("WARNING", "upstream partner: no call got through: the next one is made in 60 s"),
        ("INFO", "upstream partner: calls get through again"),
    ]


async def test_with_a_queue_a_task_waits_for_its_upstream(gates: Gates) -> None:
    port = kept_port()
    agent = partner(f"http://127.0.0.1:{port}/agents/script", failures=1, pause_s=0.2, queues=True)
    async with fronted(agent) as connection:
        task = await asked(connection, "hello", return_immediately=True)
        waiting = task
        async with asyncio.timeout(DEADLINE_S):
            while not told_by(waiting):
                waiting = await connection.get(task.id)
        assert waiting.status.state is TaskState.SUBMITTED
        assert told_by(waiting) == "partner cannot be reached at present: the task waits for it."
        async with serving(replace(CONFIG, port=port), house(gates)), asyncio.timeout(DEADLINE_S):
            async for _ in connection.subscribe(task.id):
                pass
            assert text_of(await connection.get(task.id)) == "hello"


async def test_an_answer_that_nobody_can_read_fails_the_task(upstream: str) -> None:
    async with before(upstream) as between, fronted(partner(between.url + AT["1.0"])) as connection:
        between.choose = lambda asked: Fault(refuses=answer({"secret": "<html>"})) if b"Streaming" in asked else None
        task = await asked(connection, "hello")
        assert (task.status.state, told_by(task)) == (TaskState.FAILED, "partner gave an answer that cannot be read.")


async def test_an_upstream_that_cannot_say_how_its_task_stands_fails_it_in_the_end(upstream: str) -> None:
    unwell = answer({"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "Internal error"}})
    async with before(upstream) as between, fronted(partner(between.url + AT["1.0"], wait_s=0.5)) as connection:
        between.choose = lambda asked: None if b"SendStreaming" in asked else Fault(refuses=unwell)
        between.next(then=Fault(cut=600))
        task = await asked(connection, "chunks 30")
        assert (task.status.state, told_by(task)) == (TaskState.FAILED, "partner failed: Internal error")


async def test_an_agent_whose_card_never_says_the_same_twice_is_not_followed_for_ever() -> None:
    asked_for: list[str] = []

    async def card(request: web.Request) -> web.Response:
        asked_for.append("card")
        url = f"{request.url.origin()}/{len(asked_for)}"
        endpoint = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response({"name": "Restless", "supportedInterfaces": [endpoint]})

    async def nothing(request: web.Request) -> web.Response:
        asked_for.append(request.path)
        error = {"code": -32601, "message": "Method not found"}
        return web.json_response({"jsonrpc": "2.0", "id": None, "error": error})

    routes = (web.get("/.well-known/agent-card.json", card), web.post("/{path:.*}", nothing))
    async with web_site(*routes) as url, fronted(partner(url)) as connection:
        task = await asked(connection, "hello")
        assert task.status.state is TaskState.FAILED
        assert len(asked_for) < 20


async def test_a_loop_of_servers_is_cut_and_shows_the_way() -> None:
    port = kept_port()
    there = partner(f"http://127.0.0.1:{port}/agents/partner")
    async with serving(CONFIG, [there]) as url:
        back = partner(f"{url}/agents/partner", dialect="1.0")
        async with serving(replace(CONFIG, port=port), [back]), connect(f"{url}/agents/partner") as connection:
            task = await asked(connection, "hello")
    assert task.status.state is TaskState.REJECTED
    assert "goes round" in told_by(task)
    assert told_by(task).count("partner") == 3


async def test_an_agent_delegates_to_an_agent_of_another_server(upstream: str, gates: Gates) -> None:
    boss = Agent("boss")

    @boss.skill
    async def hand_on(ctx: Context) -> str:
        """Lets the partner do it."""
        return f"partner says {(await ctx.delegate('partner', ctx.text)).text}"

    agents: list[Runner] = [boss, partner(upstream + AT["1.0"])]
    async with (
        serving(CONFIG, agents) as url,
        connect(f"{url}/agents/boss") as connection,
        connect(upstream + AT["1.0"]) as behind,
    ):
        assert text_of(await asked(connection, "hello")) == "partner says hello"
        task = await asked(connection, "wait child", return_immediately=True)
        await asyncio.wait_for(gates.reached["child"].wait(), DEADLINE_S)
        await connection.cancel(task.id)
        async with asyncio.timeout(DEADLINE_S):
            while (await behind.list()).tasks[0].status.state is not TaskState.CANCELED:
                await asyncio.sleep(0.02)


async def test_artifacts_from_before_a_question_are_not_given_twice(upstream: str) -> None:
    asks = Agent("asks")

    @asks.skill
    async def two(ctx: Context) -> AsyncIterator[object]:
        """Gives, asks, gives."""
        yield "before "
        yield await ctx.ask("Which?")

    async with serving(CONFIG, [asks]) as url, fronted(partner(f"{url}/agents/asks")) as connection:
        task = await asked(connection, "go")
        updates = [update async for update in connection.stream("after", task_id=task.id)]
        chunks = [update for update in updates if isinstance(update, ArtifactUpdate)]
        assert [part.text for chunk in chunks for part in chunk.artifact.parts] == ["after"]


@pytest.mark.parametrize("cut", [400, 700, 1000, 1500])
async def test_a_stream_that_breaks_is_taken_up_without_a_gap_or_a_repeat(upstream: str, cut: int) -> None:
    async with before(upstream) as between, fronted(partner(between.url + AT["1.0"], dedupes=True)) as connection:
        between.next(Fault(cut=cut), Fault(cut=cut))
        task = await asked(connection, "chunks 30")
        assert (task.status.state, text_of(task)) == (
            TaskState.COMPLETED,
            "".join(f"{number} " for number in range(30)),
        )


async def test_a_send_whose_answer_is_lost_is_repeated_where_the_card_says_that_it_is_known(upstream: str) -> None:
    async with before(upstream) as between, fronted(partner(between.url + AT["1.0"])) as connection:
        between.next(Fault(cut=0))
        task = await asked(connection, "hello")
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "hello")
        assert sum(b"SendStreamingMessage" in request for request in between.asked) == 2
    async with connect(upstream + AT["1.0"]) as behind:
        assert sum(text_of(each) == "hello" for each in (await behind.list(include_artifacts=True)).tasks) <= 1


async def test_a_send_whose_answer_is_lost_is_not_repeated_where_that_may_do_it_twice(upstream: str) -> None:
    async with before(upstream) as between, fronted(partner(between.url + AT["1.0"], dedupes=False)) as connection:
        between.next(Fault(cut=0))
        task = await asked(connection, "hello")
        assert task.status.state is TaskState.FAILED
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "upstream_uncertain"}
        assert sum(b"SendStreamingMessage" in request for request in between.asked) == 1


# -- who asks ----------------------------------------------------------------------------------------------------------

KEYED = replace(CONFIG, api_key="upstream-key-123456")


async def test_a_key_of_our_own_is_shown_to_the_upstream_only(gates: Gates, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(KEYED, house(gates)) as url:
        agent = partner(url + AT["1.0"], make_credentials=lambda egress: ApiKey("upstream-key-123456"))
        async with fronted(agent) as connection:
            assert text_of(await asked(connection, "hello")) == "hello"
            assert connection.card is not None
            assert "upstream-key" not in str(connection.card.whole)
        async with fronted(
            partner(url + AT["1.0"], make_credentials=lambda egress: ApiKey("wrong-key-12345678"))
        ) as connection:
            task = await asked(connection, "hello")
            assert task.status.state is TaskState.FAILED
            assert "does not let this server in" in told_by(task)
    assert "key-123" not in caplog.text


async def test_the_callers_own_credentials_are_passed_on_and_asked_for_when_they_are_missing(gates: Gates) -> None:
    async with serving(KEYED, house(gates)) as url:
        agent = partner(url + AT["1.0"], forwards=True)
        async with serving(CONFIG, [agent]) as front:
            where = f"{front}/agents/partner"
            async with connect(where, credentials=ApiKey("upstream-key-123456")) as mine, connect(where) as nobody:
                assert text_of(await asked(mine, "hello")) == "hello"
                task = await asked(nobody, "hello")
                assert (task.status.state, "who asks" in told_by(task)) == (TaskState.AUTH_REQUIRED, True)
                assert text_of(await asked(mine, "it is me", task_id=task.id)) == "hello"


async def test_the_card_is_not_read_with_what_a_caller_shows() -> None:
    shown: list[str | None] = []
    called: list[str | None] = []

    async def card(request: web.Request) -> web.Response:
        shown.append(request.headers.get("x-api-key"))
        endpoint = {"url": f"/{len(shown)}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response({"name": f"For {shown[-1]}", "supportedInterfaces": [endpoint]})

    async def moved(request: web.Request) -> web.Response:
        asked_for = await request.json()
        if request.path == "/1":
            error = {"code": -32601, "message": "Method not found"}
            return web.json_response({"jsonrpc": "2.0", "id": asked_for["id"], "error": error})
        called.append(request.headers.get("x-api-key"))
        said = {"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
        return web.json_response({"jsonrpc": "2.0", "id": asked_for["id"], "result": {"message": said}})

    routes = (web.get("/.well-known/agent-card.json", card), web.post("/{path:.*}", moved))
    caller = ApiKey("callers-own-key-1")
    async with (
        web_site(*routes) as url,
        serving(CONFIG, [partner(url, forwards=True)]) as front,
        connect(f"{front}/agents/partner", credentials=caller) as connection,
    ):
        assert text_of(await asked(connection, "hello")) == "hi"
        assert called == ["callers-own-key-1"]
        await connection.refresh(anew=True)
        assert connection.card is not None
        assert connection.card.name == "For None"
    assert shown == [None, None]


async def test_what_callers_show_is_neither_stored_nor_logged(
    gates: Gates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    kept = replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}", audit="all")
    async with serving(KEYED, house(gates)) as url, serving(kept, [partner(url + AT["1.0"], forwards=True)]) as front:
        async with connect(f"{front}/agents/partner", credentials=ApiKey("upstream-key-123456")) as connection:
            assert text_of(await asked(connection, "hello")) == "hello"
            await asked(connection, "fail")
        held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"hello" in held
    assert b"upstream-key" not in held
    assert "upstream-key" not in caplog.text


async def test_a_task_whose_caller_is_forgotten_asks_who_it_is(gates: Gates, tmp_path: Path) -> None:
    kept = replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}")
    async with serving(KEYED, house(gates)) as url:
        agent = partner(url + AT["1.0"], forwards=True)
        key = ApiKey("upstream-key-123456")
        async with serving(kept, [agent]) as front, connect(f"{front}/agents/partner", credentials=key) as mine:
            task = await asked(mine, "wait who", return_immediately=True)
            await asyncio.wait_for(gates.reached["who"].wait(), DEADLINE_S)
        gates.open["who"].set()
        agent = partner(url + AT["1.0"], forwards=True)
        async with serving(kept, [agent]) as front, connect(f"{front}/agents/partner", credentials=key) as mine:
            async with asyncio.timeout(DEADLINE_S):
                while (found := await mine.get(task.id)).status.state is not TaskState.AUTH_REQUIRED:
                    await asyncio.sleep(0.02)
            assert "who asks" in told_by(found)
            assert text_of(await asked(mine, "it is me", task_id=task.id)) == "done"


async def test_a_token_is_fetched_for_the_upstream(gates: Gates) -> None:
    async def token(request: web.Request) -> web.Response:
        return web.json_response({"access_token": "upstream-key-123456", "token_type": "Bearer", "expires_in": 60})

    async with serving(KEYED, house(gates)) as url, web_site(web.post("/token", token)) as issuer:
        agent = partner(
            url + AT["1.0"],
            make_credentials=lambda egress: ClientCredentials(f"{issuer}/token", "us", "secret", egress=egress),
        )
        async with fronted(agent) as connection:
            assert text_of(await asked(connection, "hello")) == "hello"


# -- no A2A ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", [None, {"name": "kaos", "url": "http://x", "supportedProtocols": ["chat"]}])
async def test_without_a2a_it_is_asked_over_chat_completions(card: dict[str, Any] | None) -> None:
    heard: list[Any] = []

    async def complete(request: web.Request) -> web.Response:
        heard.append(await request.json())
        return web.json_response({"choices": [{"message": {"content": "hi"}}]})

    async def card_of(request: web.Request) -> web.Response:
        return web.json_response(card) if card is not None else web.Response(status=404)

    routes = (web.post("/v1/chat/completions", complete), web.get("/.well-known/agent.json", card_of))
    async with web_site(*routes) as url, fronted(partner(url)) as connection:
        first = await asked(connection, "hello")
        assert (first.status.state, text_of(first)) == (TaskState.COMPLETED, "hi")
        await asked(connection, "again", context_id=first.context_id)
        said_so = [(message["role"], message["content"]) for message in heard[1]["messages"]]
        assert said_so == [("user", "hello"), ("assistant", "hi"), ("user", "again")]


async def test_files_of_an_upstream_that_is_declared_to_encode_them_twice_are_read_so() -> None:
    heard: list[Any] = []

    async def sent(request: web.Request) -> web.Response:
        heard.append((await request.json())["message"]["content"][0])
        file = {"file": {"fileWithBytes": "YUdWc2JHOD0=", "mimeType": "text/plain"}}
        status = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-20T07:00:00.000Z"}
        artifacts = [{"artifactId": "a", "parts": [file]}]
        return web.json_response({"task": {"id": "t", "contextId": "c", "status": status, "artifacts": artifacts}})

    async def card_of(request: web.Request) -> web.Response:
        return web.json_response({**OFFICIAL, "preferredTransport": "HTTP+JSON", "capabilities": {"streaming": False}})

    routes = (web.post("/v1/message:send", sent), web.get("/.well-known/agent-card.json", card_of))
    async with web_site(*routes) as url, fronted(partner(url, double_base64=True)) as connection:
        task = await asked(connection, [Part(raw=b"\x00\xff", media_type="text/plain")])
        assert task.artifacts[0].parts[0].raw == b"hello"
    assert heard[0]["file"]["fileWithBytes"] == "QVA4PQ=="


def refused(code: int, status: int) -> web.Response:
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}}
    return web.json_response(error, status=status)


KAOS = {"name": "kaos", "protocolVersion": "0.3.0", "supportedProtocols": ["jsonrpc"]}
OFFICIAL = {"name": "official", "url": "/", "protocolVersion": "0.3.0", "skills": []}


@pytest.mark.parametrize(
    ("card", "answer", "chats"),
    [
        *((KAOS, refused(code, status), True) for code in (-32603, -32602, -32601) for status in (200, 500)),
        (KAOS, web.Response(status=500, text="Internal Server Error"), True),
        (KAOS, web.Response(status=401), False),
        (KAOS, web.Response(text="<html>"), False),  # it may have done what was asked
        (KAOS, web.Response(status=504), False),
        (OFFICIAL, refused(-32603, 200), False),
    ],
)
async def test_where_the_a2a_of_kaos_fails_it_is_asked_over_chat_completions(
    card: dict[str, Any], answer: web.Response, chats: bool
) -> None:
    heard: list[str] = []

    async def complete(request: web.Request) -> web.Response:
        heard.append("chat")
        return web.json_response({"choices": [{"message": {"content": "hi"}}]})

    async def card_of(request: web.Request) -> web.Response:
        return web.json_response(card)

    async def send(request: web.Request) -> web.Response:
        return web.Response(body=answer.body, status=answer.status, content_type=answer.content_type)

    routes = (
        web.post("/", send),
        web.post("/v1/chat/completions", complete),
        web.get("/.well-known/agent.json", card_of),
    )
    async with web_site(*routes) as url, fronted(partner(url)) as connection:
        task = await asked(connection, "hello")
        assert task.status.state is (TaskState.COMPLETED if chats else TaskState.FAILED)
        assert (text_of(task), heard) == (("hi", ["chat"]) if chats else ("", []))


async def test_over_chat_completions_too_the_callers_credentials_are_passed_on() -> None:
    shown: list[str | None] = []

    async def complete(request: web.Request) -> web.Response:
        shown.append(request.headers.get("x-api-key"))
        return web.json_response({"choices": [{"message": {"content": "hi"}}]})

    async with (
        web_site(web.post("/v1/chat/completions", complete)) as url,
        serving(CONFIG, [partner(url, forwards=True)]) as front,
        connect(f"{front}/agents/partner", credentials=ApiKey("callers-own-key-1")) as connection,
    ):
        assert text_of(await asked(connection, "hello")) == "hi"
    assert shown == ["callers-own-key-1"]


# -- what its operator sees --------------------------------------------------------------------------------------------


async def test_calls_are_counted_by_outcome(upstream: str) -> None:
    agent = partner(upstream + AT["1.0"])
    async with serving(replace(CONFIG, metrics=True), [agent]) as url, connect(f"{url}/agents/partner") as connection:
        await asked(connection, "hello")
        async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as page:
            text = await page.text()
    assert 'dragoman_upstream_calls_total{agent="partner",outcome="succeeded"} 1.0' in text
    assert 'dragoman_upstream_state{agent="partner",state="closed"} 1.0' in text
    assert 'dragoman_upstream_wait_milliseconds_count{agent="partner"} 1.0' in text
