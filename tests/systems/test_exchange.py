"""Callers' tokens are exchanged for those of the servers behind: who is asked, what goes where, and who is named."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec import structs

from dragoman import Agent, Context
from dragoman.agents.configured_credentials import ConfiguredCredentials
from dragoman.agents.mcp.http import HttpReach
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.agents.model.agent import ChatAgent
from dragoman.agents.model.pool import ModelPool, PoolEndpoint
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.client import ApiKey, BearerToken, Retries, connect
from dragoman.client.token_exchange import present_subject, read_subject_token
from dragoman.config import Model, Upstream
from dragoman.config.pools import AgentPool, AgentPoolMember
from dragoman.config.upstreams import ExchangeEntry
from dragoman.dialects.extensions import ACTING, DEDUPE
from dragoman.engine.admin.delegation_tree import DelegationTrees
from dragoman.engine.admin.inspection import Inspector
from dragoman.model.acting_chain import LINKS_MAX
from dragoman.model.card import Profile
from dragoman.model.errors import Unavailable
from dragoman.model.task import Task, TaskState
from dragoman.server import serving
from dragoman.store.api import ListQuery, Owners
from tests.agents.model.completions import Answering, Completions, called, completions, refused, said
from tests.auth.exchanging import ExchangingIssuer, claims_of, exchanging
from tests.kit.places import asked, beside, quick, sqlite_url
from tests.kit.values import text_of, told_by
from tests.kit.waiting import DEADLINE_S, no_hang
from tests.kit.web import web_site
from tests.net.peer import nobody
from tests.spec.agents import Gates

FRONT, BACK = "https://front.example", "https://back.example"
EVERY = ListQuery(owner=Owners.ALL, agent=None)
SECRET = "the-servers-own-secret"


@pytest.fixture
async def issuer() -> AsyncIterator[ExchangingIssuer]:
    async with no_hang(), exchanging() as issuer:
        yield issuer


def verified(issuer: ExchangingIssuer, audience: str, **settings: Any) -> Any:
    """The settings of a server that takes tokens for that audience."""
    return quick(jwt_issuer=issuer.url, jwt_audience=audience, **settings)


def who(gates: Gates | None = None) -> Agent:
    """Says who asks; `wait` waits for a gate first, `ask` asks, `repeat` tells what should be secret."""
    agent = Agent("who", headers=["authorization", "x-api-key"], credentials={"forward": True}, restartable=True)

    @agent.skill
    async def name(ctx: Context) -> str:
        """Says who asks."""
        if ctx.text == "wait" and gates is not None:
            gates.reached["who"].set()
            await gates.open["who"].wait()
        if ctx.text == "ask":
            await ctx.ask("Sure?")
        if ctx.text == "repeat":
            return f"you showed {dict(ctx.headers or {})['authorization']}; the issuer knows {SECRET}"
        return ctx.principal.id.partition("@")[0]

    return agent


def boss() -> Agent:
    """Has the agent `partner` do it."""
    agent = Agent("boss")

    @agent.skill
    async def pass_on(ctx: Context) -> str:
        """Passes it on."""
        return (await ctx.delegate("partner", ctx.text)).text

    return agent


def partner(url: str, issuer: ExchangingIssuer, *, queues: bool = False, **more: Any) -> UpstreamAgent:
    table = issuer.exchange_for(**{"audience": BACK, **more})
    return UpstreamAgent(
        Profile(id="partner", name="Partner", description="Ours", version="0.1", skills=()),
        Upstream(url=url, credentials=table),
        make_credentials=ConfiguredCredentials(table, SECRET).make,
        queues=queues,
    )


async def test_the_upstream_is_called_in_the_name_of_each_caller(issuer: ExchangingIssuer) -> None:
    async with serving(verified(issuer, BACK), [who()]) as back:
        agent = partner(f"{back}/agents/who", issuer)
        async with serving(verified(issuer, FRONT), [agent]) as front:
            where = f"{front}/agents/partner"
            alice, bob = (issuer.caller(FRONT, sub=name) for name in ("alice", "bob"))
            async with (
                connect(where, credentials=BearerToken(alice)) as mine,
                connect(where, credentials=BearerToken(bob)) as theirs,
            ):
                for _ in range(3):
                    assert text_of(await asked(mine, "hello")) == "jwt:alice"
                    assert text_of(await asked(theirs, "hello")) == "jwt:bob"
    assert len(issuer.asked) == 2  # one exchange for each of them
    form = issuer.asked[0]
    assert {name: form[name] for name in form if name != "subject_token"} == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "audience": BACK,
    }
    assert claims_of(form["subject_token"])["sub"] == "alice"


@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize("refusal", [(400, "invalid_grant"), (403, "access_denied")])
async def test_a_refused_exchange_asks_for_another_token(
    issuer: ExchangingIssuer, refusal: tuple[int, str], queues: bool
) -> None:
    async with (
        serving(verified(issuer, BACK), [who()]) as back,
        serving(verified(issuer, FRONT), [partner(f"{back}/agents/who", issuer, queues=queues)]) as front,
    ):
        where = f"{front}/agents/partner"
        issuer.refusal = refusal
        async with connect(where, credentials=BearerToken(issuer.caller(FRONT, jti="1"))) as mine:
            task = await asked(mine, "hello")
        assert (task.status.state, "not accepted" in told_by(task)) == (TaskState.AUTH_REQUIRED, True)
        assert len(issuer.asked) == 1
        issuer.refusal = None
        async with connect(where, credentials=BearerToken(issuer.caller(FRONT, jti="2"))) as mine:
            task = await asked(mine, "now?", task_id=task.id)
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "jwt:alice")


async def test_the_refused_token_is_not_tried_again(issuer: ExchangingIssuer) -> None:
    issuer.refusal = (400, "invalid_grant")
    async with (
        serving(verified(issuer, BACK), [who()]) as back,
        serving(verified(issuer, FRONT), [partner(f"{back}/agents/who", issuer)]) as front,
    ):
        token = BearerToken(issuer.caller(FRONT))
        async with connect(f"{front}/agents/partner", credentials=token) as mine:
            task = await asked(mine, "hello")
            task = await asked(mine, "the same", task_id=task.id)
    assert (task.status.state, reason_of(task)) == (TaskState.FAILED, "exchange_refused")
    assert len(issuer.asked) == 1


async def test_tokens_of_one_caller_are_refused_a_few_times_only(issuer: ExchangingIssuer) -> None:
    issuer.refusal = (400, "invalid_grant")
    async with (
        serving(verified(issuer, BACK), [who()]) as back,
        serving(verified(issuer, FRONT), [partner(f"{back}/agents/who", issuer)]) as front,
    ):
        task_id, states = None, []
        for number in range(4):
            token = BearerToken(issuer.caller(FRONT, jti=str(number)))
            async with connect(f"{front}/agents/partner", credentials=token) as mine:
                task = await asked(mine, "hello", **({} if task_id is None else {"task_id": task_id}))
            task_id = task.id
            states.append(task.status.state)
    assert states == [TaskState.AUTH_REQUIRED] * 3 + [TaskState.FAILED]
    assert len(issuer.asked) == 4


@pytest.mark.parametrize(
    ("refusal", "more", "answer"),
    [
        ((401, "invalid_client"), {}, {}),
        ((400, "unauthorized_client"), {}, {}),
        ((400, "unsupported_grant_type"), {}, {}),
        ((400, "invalid_target"), {}, {}),
        (None, {"aud": "https://elsewhere.example"}, {}),
        (None, {"aud": [BACK, "https://elsewhere.example"]}, {}),
        (None, {"scope": "read write"}, {}),
        (None, {}, {"scope": "read write"}),
        (None, {}, {"issued_token_type": "urn:ietf:params:oauth:token-type:id_token"}),
    ],
)
async def test_an_exchange_that_cannot_be_used_ends_the_task_and_the_upstream_is_not_called(
    issuer: ExchangingIssuer,
    caplog: pytest.LogCaptureFixture,
    refusal: tuple[int, str] | None,
    more: dict[str, Any],
    answer: dict[str, Any],
) -> None:
    """Not even an agent that queues waits for it: no wait changes the setup."""
    issuer.refusal, issuer.more, issuer.answer = refusal, more, answer
    async with serving(verified(issuer, BACK), [who()]) as back:
        agent = partner(f"{back}/agents/who", issuer, queues=True, scope="read")
        async with serving(verified(issuer, FRONT), [agent]) as front:
            token = BearerToken(issuer.caller(FRONT, scope="read"))
            async with connect(f"{front}/agents/partner", credentials=token) as mine:
                task = await asked(mine, "hello")
    assert (task.status.state, reason_of(task)) == (TaskState.FAILED, "upstream_refused")
    assert len(issuer.asked) == 1
    assert "ExchangeUnusable" in caplog.text


async def test_the_scope_never_widens(issuer: ExchangingIssuer) -> None:
    async with serving(verified(issuer, BACK), [who()]) as back:
        agent = partner(f"{back}/agents/who", issuer, scope="read write")
        async with serving(verified(issuer, FRONT), [agent]) as front:
            where = f"{front}/agents/partner"
            for scope, asked_for in (("write admin", "write"), ("admin", None)):
                async with connect(where, credentials=BearerToken(issuer.caller(FRONT, scope=scope))) as mine:
                    task = await asked(mine, "hello")
                assert task.status.state is (TaskState.COMPLETED if asked_for else TaskState.AUTH_REQUIRED)
                if asked_for:
                    assert issuer.asked[-1]["scope"] == asked_for
    assert len(issuer.asked) == 1  # the issuer is not asked for what the caller's token does not have


async def test_a_scope_may_stand_for_another_one_at_the_upstream(issuer: ExchangingIssuer) -> None:
    async with serving(verified(issuer, BACK), [who()]) as back:
        agent = partner(
            f"{back}/agents/who",
            issuer,
            exchange=ExchangeEntry(scopes={"agents": "read list", "agents.write": "write"}),
        )
        async with serving(verified(issuer, FRONT), [agent]) as front:
            token = BearerToken(issuer.caller(FRONT, scope="agents openid"))
            async with connect(f"{front}/agents/partner", credentials=token) as mine:
                assert text_of(await asked(mine, "hello")) == "jwt:alice"
    assert issuer.asked[0]["scope"] == "read list"


@pytest.mark.parametrize("shown", ["key", "nothing"])
async def test_a_caller_without_a_token_is_refused_and_its_key_goes_nowhere(
    issuer: ExchangingIssuer, shown: str
) -> None:
    key = ApiKey("callers-own-key-1") if shown == "key" else None
    config = quick(api_key="callers-own-key-1") if shown == "key" else quick()
    async with (
        serving(verified(issuer, BACK), [who()]) as back,
        serving(config, [partner(f"{back}/agents/who", issuer)]) as front,
    ):
        async with connect(f"{front}/agents/partner", credentials=key) as mine:
            task = await asked(mine, "hello")
        if shown == "key":
            async with connect(f"{front}/agents/partner", credentials=BearerToken("callers-own-key-1")) as mine:
                assert reason_of(await asked(mine, "hello")) == "subject_token_missing"
    if shown == "key":
        assert (task.status.state, reason_of(task)) == (TaskState.REJECTED, "subject_token_missing")
        assert "JWT" in told_by(task)
    else:  # nobody knows who that is: it may have a token
        assert (task.status.state, "who asks" in told_by(task)) == (TaskState.AUTH_REQUIRED, True)
    assert issuer.asked == []


async def test_no_token_is_told_to_anybody(
    issuer: ExchangingIssuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "dragoman")
    kept = {"store": f"sqlite:///{tmp_path / 'front.db'}", "audit": "all"}
    mine = issuer.caller(FRONT)
    async with (
        serving(verified(issuer, BACK), [who()]) as back,
        serving(verified(issuer, FRONT, **kept), [partner(f"{back}/agents/who", issuer)]) as front,
    ):
        async with connect(f"{front}/agents/partner", credentials=BearerToken(mine)) as caller:
            told = repr(await asked(caller, "repeat"))
            issuer.refusal = (400, "invalid_grant")
            late = issuer.caller(FRONT, jti="late")
            async with connect(f"{front}/agents/partner", credentials=BearerToken(late)) as other:
                told += repr(await asked(other, "hello"))
        held = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode("latin-1")
    assert "you showed Bearer ***; the issuer knows ***" in told
    everything = told + held + caplog.text
    for token in (mine, late, *issuer.issued, f".{SECRET}"):
        assert not [piece for piece in token.split(".")[1:] if piece in everything]


async def test_after_a_restart_the_caller_is_asked_who_it_is(
    issuer: ExchangingIssuer, gates: Gates, tmp_path: Path
) -> None:
    kept = verified(issuer, FRONT, store=f"sqlite:///{tmp_path / 'front.db'}")
    token = BearerToken(issuer.caller(FRONT))
    async with serving(verified(issuer, BACK), [who(gates)]) as back:
        async with (
            serving(kept, [partner(f"{back}/agents/who", issuer)]) as front,
            connect(f"{front}/agents/partner", credentials=token) as mine,
        ):
            task = await asked(mine, "wait", return_immediately=True)
            await asyncio.wait_for(gates.reached["who"].wait(), DEADLINE_S)
        gates.open["who"].set()
        async with (
            serving(kept, [partner(f"{back}/agents/who", issuer)]) as front,
            connect(f"{front}/agents/partner", credentials=token) as mine,
        ):
            async with asyncio.timeout(DEADLINE_S):
                while (await mine.get(task.id)).status.state is not TaskState.AUTH_REQUIRED:
                    await asyncio.sleep(0.02)
            assert text_of(await asked(mine, "it is me", task_id=task.id)) == "jwt:alice"


async def test_the_chain_is_kept_with_the_task_and_told_to_operators_and_to_the_next_dragoman(
    issuer: ExchangingIssuer, tmp_path: Path
) -> None:
    """A caller's token goes through two servers, the second of which delegates. Each task knows who acts for whom."""
    far = "https://far.example"
    token = BearerToken(issuer.caller(FRONT, scope="read", act={"sub": "app"}))
    for name in ("back", "front"):
        (tmp_path / name).mkdir()
    behind, before = (sqlite_url(tmp_path / name) for name in ("back", "front"))
    async with serving(verified(issuer, far), [who()]) as last:
        agents = [partner(f"{last}/agents/who", issuer, audience=far, scope="read"), boss()]
        async with (
            serving(verified(issuer, BACK, store=behind), agents) as back,
            serving(
                verified(issuer, FRONT, store=before), [partner(f"{back}/agents/boss", issuer, scope="read")]
            ) as front,
            connect(f"{front}/agents/partner", credentials=token) as mine,
        ):
            task = await asked(mine, "hello")
            assert text_of(task) == "jwt:alice"
    async with beside(before) as store:
        (link,) = (await Inspector(store).show(task.id)).acting
        tree = await DelegationTrees(store).read(task.id, {})
    assert (link.subject, link.actors, link.client) == ("alice", ("front", "app"), "front")
    assert (link.audience, link.scope, link.issuer, link.told) == (BACK, "read", issuer.url, False)
    assert tree.tasks[0].acting == (link,)
    async with beside(behind) as store:
        reports = [await Inspector(store).show(row.head.id) for row in (await store.list_rows(EVERY)).rows]
    told = structs.replace(link, told=True)
    chains = {report.task.agent: report.acting for report in reports}
    assert chains["boss"] == (told,)
    assert chains["partner"][0] == told
    (own,) = chains["partner"][1:]
    assert (own.subject, own.actors, own.audience, own.told) == ("alice", ("front", "front", "app"), far, False)


async def test_each_member_of_a_pool_gets_tokens_of_its_own_audience(issuer: ExchangingIssuer) -> None:
    far = "https://far.example"
    profile = Profile(id="partner", name="Partner", description="Ours", version="0.1", skills=())
    async with serving(verified(issuer, BACK), [who()]) as back, serving(verified(issuer, far), [who()]) as other:
        for urls in ((f"{back}/agents/who", f"{other}/agents/who"), (await nobody(), f"{other}/agents/who")):
            tables = [issuer.exchange_for(audience, client_id=audience) for audience in (BACK, far)]
            upstreams = [
                Upstream(url=url, credentials=table, dialect="1.0") for url, table in zip(urls, tables, strict=True)
            ]
            pool = AgentPool(
                members=tuple(
                    AgentPoolMember(name=f"m{at}", order=at, upstream=each) for at, each in enumerate(upstreams)
                )
            )
            agent = UpstreamAgent(
                profile,
                upstreams[0],
                pool=pool,
                make_member_credentials=[ConfiguredCredentials(table, SECRET).make for table in tables],
            )
            async with serving(verified(issuer, FRONT), [agent]) as front:
                token = BearerToken(issuer.caller(FRONT))
                async with connect(f"{front}/agents/partner", credentials=token) as mine:
                    assert text_of(await asked(mine, "hello")) == "jwt:alice"
    assert [form["audience"] for form in issuer.asked] == [BACK, BACK, far]  # the second time nobody was there


async def test_the_card_is_read_in_nobodys_name_even_if_a_run_connects_first(issuer: ExchangingIssuer) -> None:
    shown: list[str | None] = []

    async def card(request: web.Request) -> web.Response:
        shown.append(request.headers.get("authorization"))
        endpoint = {"url": "/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response({"name": "Other", "supportedInterfaces": [endpoint]})

    async with web_site(web.get("/.well-known/agent-card.json", card)) as other:
        agent = partner(other, issuer)
        subject = read_subject_token({"authorization": f"Bearer {issuer.caller(FRONT)}"})
        before = present_subject.set(subject)  # as in a run that an agent called in its caller's name has delegated
        try:
            await agent.route.endpoint.connection()
            await agent.route.endpoint.refresh_card()
        finally:
            present_subject.reset(before)
            await agent.close()
    assert shown == [None, None]
    assert issuer.asked == []


@pytest.mark.parametrize("dragoman", [True, False])
async def test_a_chain_is_told_to_a_dragoman_alone_and_what_a_caller_makes_up_pushes_out_no_link(
    issuer: ExchangingIssuer, dragoman: bool
) -> None:
    heard: list[Any] = []
    made_up = [{"subject": f"nobody-{number}"} for number in range(LINKS_MAX)]

    async def card(request: web.Request) -> web.Response:
        endpoint = {"url": "/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        extensions = {"extensions": [{"uri": DEDUPE}]} if dragoman else {}
        return web.json_response({"name": "Other", "supportedInterfaces": [endpoint], "capabilities": extensions})

    async def call(request: web.Request) -> web.Response:
        heard.append(await request.json())
        said = {"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
        return web.json_response({"jsonrpc": "2.0", "id": heard[-1]["id"], "result": {"message": said}})

    routes = (web.get("/.well-known/agent-card.json", card), web.post("/a2a", call))
    async with web_site(*routes) as other, serving(verified(issuer, FRONT), [partner(other, issuer)]) as front:
        token = BearerToken(issuer.caller(FRONT))
        async with connect(f"{front}/agents/partner", credentials=token) as mine:
            assert text_of(await asked(mine, "hello", metadata={ACTING: made_up})) == "hi"
    if not dragoman:
        assert ACTING not in repr(heard)
        return
    *told, own = heard[-1]["params"]["message"]["metadata"][ACTING]
    assert told == made_up[1:]
    assert (own["subject"], own["client"], own["audience"]) == ("alice", "front", BACK)


# -- tools of models ---------------------------------------------------------------------------------------------------


def model_with_tools(api: Completions, back: str, issuer: ExchangingIssuer, **more: Any) -> ChatAgent:
    table = issuer.exchange_for(**{"audience": BACK, **more.pop("table", {})})
    reach = HttpReach(f"{back}/mcp", ConfiguredCredentials(table, SECRET).make)
    profile = Profile(id="partner", name="Partner", description="Ours", version="0.1", skills=())
    model = Model(url=api.url, model="small")
    pool = ModelPool([PoolEndpoint(model, "")])
    return ChatAgent(profile, model, pool, tools=McpTools([McpGrant(name="back", reach=reach, **more)]))


def shown_results(api: Completions) -> list[str]:
    """What the model was told of the tools' results."""
    return [message["content"] for message in api.body["messages"] if message["role"] == "tool"]


async def test_tools_are_called_in_the_name_of_each_caller(issuer: ExchangingIssuer) -> None:
    async with (
        completions() as api,
        serving(verified(issuer, BACK), [who()]) as back,
        serving(verified(issuer, FRONT), [model_with_tools(api, back, issuer)]) as front,
    ):
        for name in ("alice", "bob", "alice"):
            api.answers(called(("c1", "who", '{"message": "hello"}')), said("done"))
            token = BearerToken(issuer.caller(FRONT, sub=name, jti=name))
            async with connect(f"{front}/agents/partner", credentials=token) as mine:
                task = await asked(mine, "hello")
            assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "done")
            assert f"jwt:{name}" in shown_results(api)[0]
        api.answers(called(("c1", "who", '{"message": "repeat"}')), said("done"))
        async with connect(f"{front}/agents/partner", credentials=token) as mine:
            await asked(mine, "hello")
        (told,) = shown_results(api)
    assert "you showed Bearer ***" in told
    assert len(issuer.asked) == 2
    asked_with = [each.headers.get("authorization", "") for each in api.asked]
    assert not any(asked_with)  # the endpoint of the model is none of the tools' servers


async def test_each_caller_has_a_list_of_tools_of_its_own(issuer: ExchangingIssuer) -> None:
    other = Agent("other")

    @other.skill
    async def do(ctx: Context) -> str:
        """Does another thing."""
        return "done"

    async with (
        completions() as api,
        serving(verified(issuer, BACK), [who(), other]) as back,
        serving(verified(issuer, FRONT), [model_with_tools(api, back, issuer)]) as front,
    ):
        for name in ("who", "other", "who"):
            issuer.more = {"dragoman": {"agents": [name]}}
            token = BearerToken(issuer.caller(FRONT, sub=name))
            async with connect(f"{front}/agents/partner", credentials=token) as mine:
                await asked(mine, "hello")
            assert [tool["function"]["name"] for tool in api.body["tools"]] == [name]


async def test_tools_ask_for_another_token_when_the_callers_is_refused(issuer: ExchangingIssuer) -> None:
    issuer.refusal = (400, "invalid_grant")
    async with (
        completions() as api,
        serving(verified(issuer, BACK), [who()]) as back,
        serving(verified(issuer, FRONT), [model_with_tools(api, back, issuer)]) as front,
    ):
        where = f"{front}/agents/partner"
        async with connect(where, credentials=BearerToken(issuer.caller(FRONT, jti="1"))) as mine:
            task = await asked(mine, "hello")
            assert (task.status.state, "not accepted" in told_by(task)) == (TaskState.AUTH_REQUIRED, True)
        assert api.asked == []
        issuer.refusal = None
        api.answers(called(("c1", "who", '{"message": "hello"}')), said("done"))
        async with connect(where, credentials=BearerToken(issuer.caller(FRONT, jti="2"))) as mine:
            task = await asked(mine, "now?", task_id=task.id)
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "done")
    assert "jwt:alice" in shown_results(api)[0]
    assert [message["content"] for message in api.body["messages"] if message["role"] == "user"] == ["hello"]


async def test_tools_ask_who_it_is_after_a_restart_and_nothing_is_called_twice(
    issuer: ExchangingIssuer, tmp_path: Path
) -> None:
    """The caller is asked for approval, the server starts again, and the approval comes with a token."""
    kept = verified(issuer, FRONT, store=sqlite_url(tmp_path), suspend_after_s=0.1)
    token = BearerToken(issuer.caller(FRONT))
    async with completions() as api, serving(verified(issuer, BACK), [who()]) as back:
        api.answers(called(("c1", "who", '{"message": "1"}')), called(("c2", "who", '{"message": "2"}')), said("ok"))
        for answer in ("yes", "yes", ""):
            agent = model_with_tools(api, back, issuer, approve="always")
            async with (
                serving(kept, [agent]) as front,
                connect(f"{front}/agents/partner", credentials=token) as mine,
            ):
                if answer == "yes" and not api.asked:
                    task = await asked(mine, "hello")
                    continue
                task = await asked(mine, answer or "yes", task_id=task.id)
                if not answer:
                    break
                assert task.status.state is TaskState.INPUT_REQUIRED, told_by(task)
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "ok")
    assert len(api.asked) == 3


async def test_a_task_that_goes_on_by_itself_asks_for_the_token_that_is_lost(
    issuer: ExchangingIssuer, gates: Gates, tmp_path: Path
) -> None:
    kept = verified(issuer, FRONT, store=sqlite_url(tmp_path))
    token = BearerToken(issuer.caller(FRONT))

    async def hangs(answering: Any) -> None:
        gates.reached["model"].set()
        await answering.gone.wait()

    async with completions() as api, serving(verified(issuer, BACK), [who()]) as back:
        api.answers(called(("c1", "who", '{"message": "1"}')), hangs)
        async with (
            serving(kept, [model_with_tools(api, back, issuer)]) as front,
            connect(f"{front}/agents/partner", credentials=token) as mine,
        ):
            task = await asked(mine, "hello", return_immediately=True)
            await asyncio.wait_for(gates.reached["model"].wait(), DEADLINE_S)
        api.answers(said("ok"))
        async with (
            serving(kept, [model_with_tools(api, back, issuer)]) as front,
            connect(f"{front}/agents/partner", credentials=token) as mine,
        ):
            async with asyncio.timeout(DEADLINE_S):
                while (await mine.get(task.id)).status.state is not TaskState.AUTH_REQUIRED:
                    await asyncio.sleep(0.02)
            task = await asked(mine, "it is me", task_id=task.id)
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "ok")
    assert len(issuer.asked) == 2


# -- models ------------------------------------------------------------------------------------------------------------


def model(api: Completions, issuer: ExchangingIssuer, **table: Any) -> ChatAgent:
    credentials = issuer.exchange_for(**{"audience": BACK, **table})
    entry = Model(url=api.url, model="small", credentials=credentials, retries=0)
    profile = Profile(id="partner", name="Partner", description="Ours", version="0.1", skills=())
    return ChatAgent(profile, entry, ModelPool([PoolEndpoint(entry, SECRET)]))


def echoing(answering: Answering) -> Awaitable[None]:
    """Repeats what it was shown, in the middle of its answer and in pieces."""
    shown = answering.asked.headers["authorization"]
    return said("you showed ", *(shown[at : at + 40] for at in range(0, len(shown), 40)), ", I think")(answering)


async def test_a_model_is_called_in_the_name_of_each_caller(
    issuer: ExchangingIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "dragoman")
    async with completions() as api, serving(verified(issuer, FRONT), [model(api, issuer)]) as front:
        api.answers(echoing, echoing, refused(400, {"message": "you showed it", "type": "t", "code": None}))
        told = ""
        for name in ("alice", "bob"):
            token = BearerToken(issuer.caller(FRONT, sub=name))
            async with connect(f"{front}/agents/partner", credentials=token) as mine:
                told += text_of(await asked(mine, "hello"))
        shown = [each.headers["authorization"].removeprefix("Bearer ") for each in api.asked]
        assert [(claims_of(each)["sub"], claims_of(each)["aud"]) for each in shown] == [("alice", BACK), ("bob", BACK)]
    assert told.count("***") == 2
    assert told.count(", I think") == 2
    for each in shown:
        assert not [part for part in each.split(".")[1:] if part[:60] in told + caplog.text]


@pytest.mark.parametrize(
    ("refusal", "more", "state", "reason"),
    [
        ((400, "invalid_grant"), {}, TaskState.AUTH_REQUIRED, None),
        ((401, "invalid_client"), {}, TaskState.FAILED, "model_refused_server"),
        (None, {"aud": "https://elsewhere"}, TaskState.FAILED, "model_refused_server"),
        ((503, "busy"), {}, TaskState.FAILED, "model_unreachable"),
    ],
)
async def test_a_model_is_not_called_without_a_token_for_the_caller(
    issuer: ExchangingIssuer,
    refusal: tuple[int, str] | None,
    more: dict[str, Any],
    state: TaskState,
    reason: str | None,
) -> None:
    issuer.refusal, issuer.more = refusal, more
    async with (
        completions() as api,
        serving(verified(issuer, FRONT), [model(api, issuer)]) as front,
        connect(
            f"{front}/agents/partner", credentials=BearerToken(issuer.caller(FRONT)), retries=Retries(attempts=1)
        ) as mine,
    ):
        if refusal is not None and refusal[0] == 503:
            with pytest.raises(Unavailable):
                await asked(mine, "hello")
        else:
            task = await asked(mine, "hello")
            assert (task.status.state, reason_of(task)) == (state, reason)
    assert api.asked == []


async def test_a_model_that_refuses_the_token_is_shown_another_one_once(issuer: ExchangingIssuer) -> None:
    async with completions() as api, serving(verified(issuer, FRONT), [model(api, issuer)]) as front:
        api.answers(refused(401), said("hello"))
        token = BearerToken(issuer.caller(FRONT))
        async with connect(f"{front}/agents/partner", credentials=token) as mine:
            assert text_of(await asked(mine, "hello")) == "hello"
    assert len(issuer.asked) == 2


def reason_of(task: Task) -> Any:
    message = task.status.message
    return None if message is None else (message.metadata or {}).get("reason")
