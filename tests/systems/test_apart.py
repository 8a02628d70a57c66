"""Two callers of one agent: neither can tell the other's tasks from none, in any operation, in any dialect."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kit.places import beside
from tests.systems.asks import ASKS, CONFIG, Ask, V, filled, named, rpc
from tests.systems.conftest import DEADLINE_S, HOOK, Json, Site, Told
from tests.systems.keyed import ANNA, WORKERS, House, keyed
from tests.systems.speakers import ALL, KAOS, NEW, OLD, Speaker, task_of
from tests.systems.test_foreign import same


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with keyed(tmp_path_factory.mktemp("apart"), {**ANNA, **WORKERS}) as running:
        yield running


async def hooked(served: Site, task_id: str) -> str:
    """The task, with a webhook."""
    params = {"taskId": task_id, "id": CONFIG, "url": HOOK}
    assert "url" in (await served.rpc("/agents/desk", "CreateTaskPushNotificationConfig", params, **V)).result
    return task_id


async def waiting(served: Site) -> str:
    """A task that waits for its caller."""
    return task_of((await NEW.call(served, "SendMessage", NEW.said("ask"))).result)


@pytest.fixture(scope="module")
async def annas(house: House) -> AsyncIterator[list[str]]:
    """Tasks of hers, made as each system's clients make them: their dialects are what could tempt."""
    served = house.by("anna")
    made = [await hooked(served, await waiting(served))]
    for number, maker in enumerate(ALL):
        made.append(await hooked(served, await maker.send(served, "mine")))
        if maker is not KAOS:
            made.append(await hooked(served, await maker.start(served, f"apart-{number}")))
    yield made
    for number in range(len(ALL)):
        served.open(f"apart-{number}")


@pytest.mark.parametrize("ask", ASKS, ids=named)
async def test_what_is_annas_is_not_there_for_ben(house: House, annas: list[str], ask: Ask) -> None:
    anna, ben = house.by("anna"), house.by("ben")
    for task_id in annas:
        answer = await same(lambda asked: ask.of(ben, asked), task_id)
        assert b"mine" not in answer
        assert HOOK.encode() not in answer
    if ask.found:
        own = await hooked(anna, await waiting(anna))
        refused = (await ask.of(ben, own)).raw.replace(own.encode(), b"")
        assert await differs(anna, ask, own, refused), "the request is refused to whoever asks: it tests nothing"


async def differs(served: Site, ask: Ask, task_id: str, refused: bytes) -> bool:
    """Whether the owner is told something else; of a stream the beginning is enough."""
    path, body = ask.path.replace("{id}", task_id), filled(ask.body, task_id)
    headers = {name: text.replace("{id}", task_id) for name, text in ask.headers.items()}
    async with served.flow(path, body, verb=ask.verb, **headers) as flow:
        if flow.answer.content_type == "text/event-stream" or ask.verb == "HEAD":
            return flow.answer.status == 200
        return (await flow.answer.read()).replace(task_id.encode(), b"") != refused


async def test_all_that_ben_has_asked_has_changed_nothing(house: House, annas: list[str]) -> None:
    anna = house.by("anna")
    for task_id in annas:
        record = (await NEW.get(anna, task_id)).result
        assert record["status"]["state"] in (
            "TASK_STATE_COMPLETED", "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"
        )  # fmt: skip
        assert len(record["history"]) <= 2
        listed = await anna.rpc("/agents/desk", "ListTaskPushNotificationConfigs", {"taskId": task_id}, **V)
        assert [each["id"] for each in listed.result["configs"]] == [CONFIG]


# -- workers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["CompleteTask", "UpdateStatus", "tasks/complete", "tasks/updateStatus"])
async def test_a_worker_of_another_agent_is_told_nothing_of_this_ones_tasks(
    house: House, annas: list[str], method: str
) -> None:
    given = {"id": "{id}", "artifacts": [], "status": {"state": "working"}}
    for task_id in annas:
        for path, status in (("/desk", 403), ("/other", 200)):
            ask = rpc("worker", path, method, given)
            await same(lambda asked, ask=ask: ask.of(house.by("other worker"), asked), task_id)  # type: ignore[misc]
            told = await ask.of(house.by("other worker"), task_id)
            assert told.status == status
            assert told.error["code"] != -32601


async def test_a_worker_knows_of_its_agents_tasks_only_what_it_needs_to_report(house: House) -> None:
    """To all operations of callers, they are not there."""
    anna, worker = house.by("anna"), house.by("worker")
    task_id = await NEW.start(anna, "apart-worker")
    for ask in ASKS:
        if ask.found and ask.path.startswith(("/agents/desk", "/desk")):
            await same(lambda asked, ask=ask: ask.of(worker, asked), task_id)  # type: ignore[misc]
    said = {"id": task_id, "status": {"state": "working", "message": "on it"}}
    reported = await worker.rpc("/desk", "UpdateStatus", said)
    assert reported.error["message"] == "Task not found"
    anna.open("apart-worker")


# -- contexts ----------------------------------------------------------------------------------------------------------

IDS = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|\"m-\d+\"")
TIMES = re.compile(rb"\d{4}-\d{2}-\d{2}T[\d:.]+(Z|\+00:00)?|\"(durationMs|created)\":\s*\d+")


def masked(raw: bytes) -> bytes:
    """The answer without what is new each time."""
    return TIMES.sub(b"TIME", IDS.sub(b"ID", raw))


def in_context(speaker: Speaker, text: str, context_id: str) -> Json:
    """A send within a context."""
    params = speaker.said(text)
    params["message"]["contextId"] = context_id
    if speaker.name != "1.0":
        params["contextId"] = context_id
    return params


@pytest.mark.parametrize("speaker", ALL, ids=lambda speaker: speaker.name)
async def test_a_context_of_annas_is_a_new_one_for_ben(house: House, speaker: Speaker) -> None:
    """It is his own of that name, as empty as any other: the agent sees nothing of hers, nor do lists."""
    anna, ben = house.by("anna"), house.by("ben")
    context, unused = str(uuid.uuid4()), str(uuid.uuid4())
    send = speaker.methods[0]
    await speaker.call(anna, send, in_context(speaker, "hers", context))
    theirs = task_of((await speaker.call(anna, send, in_context(speaker, "recall", context))).result)
    assert b"hers" in (await speaker.get(anna, theirs)).raw, "an agent recalls what its caller said"
    told = [await speaker.call(ben, send, in_context(speaker, "recall", asked)) for asked in (context, unused)]
    assert masked(told[0].raw) == masked(told[1].raw)
    assert b"hers" not in told[0].raw
    mine = task_of(told[0].result)
    assert b"hers" not in (await speaker.get(ben, mine)).raw
    for served, tasks in ((anna, 2), (ben, 1)):
        page = (await served.rpc("/agents/desk", "ListTasks", {"contextId": context}, **V)).result
        assert (len(page["tasks"]), page["totalSize"]) == (tasks, tasks)
        assert (mine in str(page)) is (served is ben)


async def test_the_same_in_chat_completions(house: House) -> None:
    anna, ben = house.by("anna"), house.by("ben")
    context, unused = str(uuid.uuid4()), str(uuid.uuid4())

    async def ask(served: Site, text: str, context_id: str) -> Told:
        body = {"model": "desk", "messages": [{"role": "user", "content": text}]}
        return await served.ask("POST", "/v1/chat/completions", body, x_dragoman_context_id=context_id)

    await ask(anna, "hers", context)
    assert b"hers" in (await ask(anna, "recall", context)).raw
    told = [await ask(ben, "recall", asked) for asked in (context, unused)]
    assert masked(told[0].raw) == masked(told[1].raw)
    assert b"hers" not in told[0].raw


@pytest.mark.parametrize("speaker", ALL, ids=lambda speaker: speaker.name)
async def test_a_message_may_refer_to_ones_own_tasks_only(house: House, speaker: Speaker) -> None:
    anna, ben = house.by("anna"), house.by("ben")
    task_id = await speaker.send(anna, "hers")

    async def refer(served: Site, referred: str) -> bytes:
        params = speaker.said("recall")
        params["message"]["referenceTaskIds"] = [referred]
        told = await speaker.call(served, speaker.methods[0], params)
        assert told.status == 200
        return told.raw

    own = await refer(anna, task_id)
    assert own.count(task_id.encode()) > (await refer(ben, task_id)).count(task_id.encode())
    assert masked(await refer(ben, task_id)) == masked(await refer(ben, str(uuid.uuid4())))


# -- lists -------------------------------------------------------------------------------------------------------------

LISTS: list[tuple[str, str, str, Json, dict[str, str]]] = [
    ("POST", "/agents/desk", "ListTasks", {"pageSize": 100}, V),
    ("POST", "/", "ListTasks", {"pageSize": 100}, V),
    ("POST", "/desk", "ListTasks", {"limit": 100}, {}),
    ("POST", "/desk", "tasks/list", {"limit": 100}, {}),
    ("POST", "/agents/desk", "tasks/list", {"pageSize": 100}, {}),
    ("POST", "/agents/desk", "ListTasks", {"pageSize": 100, "includeArtifacts": True, "historyLength": 10}, V),
    ("GET", "/tasks?pageSize=100", "", {}, V),
    ("GET", "/agents/desk/tasks?pageSize=100&includeArtifacts=true", "", {}, V),
    ("GET", "/v1/tasks?pageSize=100", "", {}, {}),
]


@pytest.mark.parametrize(("verb", "path", "method", "params", "headers"), LISTS)
async def test_everyone_lists_their_own(
    house: House, annas: list[str], verb: str, path: str, method: str, params: Json, headers: dict[str, str]
) -> None:
    anna, ben = house.by("anna"), house.by("ben")
    his = await OLD.send(ben, "his")

    async def listed(served: Site) -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params} if verb == "POST" else None
        told = await served.ask(verb, path, body, **headers)
        assert told.status == 200, told
        assert "error" not in told.body, told
        return told.raw.decode()

    shown = await listed(ben)
    assert his in shown
    assert not any(task_id in shown for task_id in annas)
    assert "mine" not in shown
    assert his not in await listed(anna)


async def test_a_page_token_of_annas_opens_nothing_to_ben(house: House, annas: list[str]) -> None:
    first = (await house.by("anna").rpc("/agents/desk", "ListTasks", {"pageSize": 2}, **V)).result
    assert first["nextPageToken"]
    told = await house.by("ben").rpc(
        "/agents/desk", "ListTasks", {"pageSize": 100, "pageToken": first["nextPageToken"]}, **V
    )
    assert not any(task_id.encode() in told.raw for task_id in annas)


# -- the same call -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speaker", ALL, ids=lambda speaker: speaker.name)
@pytest.mark.parametrize("by_header", [True, False], ids=["idempotency-key", "message-id"])
async def test_the_same_call_of_two_callers_is_two_calls(house: House, speaker: Speaker, by_header: bool) -> None:
    """And of two keys of one caller, one."""
    params = speaker.said("once")
    params["message"]["messageId"] = "m" if by_header else str(uuid.uuid4())
    key = {"idempotency_key": str(uuid.uuid4())} if by_header else {}

    async def send(who: str, **changed: Any) -> Told:
        served = house.by(who)
        return await served.rpc(speaker.at("desk"), speaker.methods[0], params | changed, **speaker.headers, **key)

    told = [task_of((await send(who)).result) for who in ("anna", "ben", "anna again", "ben")]
    assert told[0] == told[2]
    assert told[1] == told[3]
    assert told[0] != told[1]


async def test_a_key_that_anna_has_used_up_is_bens_to_use(house: House) -> None:
    """The same Idempotency-Key for something else is refused; what others did with it says nothing."""
    key = {"idempotency_key": str(uuid.uuid4()), **V}
    anna, ben = house.by("anna"), house.by("ben")
    assert (await anna.rpc("/agents/desk", "SendMessage", NEW.said("one"), **key)).result
    assert (await anna.rpc("/agents/desk", "SendMessage", NEW.said("two"), **key)).error
    assert (await ben.rpc("/agents/desk", "SendMessage", NEW.said("two"), **key)).result


async def test_the_same_stream_of_two_callers_is_two_tasks(house: House) -> None:
    params = NEW.said("once")
    params["message"]["messageId"] = str(uuid.uuid4())
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
    frames = {who: await house.by(who).stream("/agents/desk", body, **V) for who in ("anna", "ben", "anna again")}
    ids = {who: task_of(each[0].body["result"]) for who, each in frames.items()}
    assert ids["anna"] == ids["anna again"] != ids["ben"]


async def test_a_stream_that_anna_could_come_back_to_is_a_new_one_for_ben(house: House) -> None:
    """`Last-Event-ID` counts for a call that was made before: hers does not count for him."""
    frames: dict[str, list[str]] = {}
    for name in ("used by anna", "unused"):
        params = NEW.said("once")
        params["message"]["messageId"] = str(uuid.uuid4())
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
        if name == "used by anna":
            first = await house.by("anna").stream("/agents/desk", body, **V)
            again = await house.by("anna again").stream("/agents/desk", body, last_event_id="2", **V)
            assert [frame.text for frame in again] == [frame.text for frame in first if int(frame.id) > 2]
        told = await house.by("ben").stream("/agents/desk", body, last_event_id="2", **V)
        frames[name] = [f"{frame.id} {masked(frame.text.encode())!r}" for frame in told]
    assert frames["used by anna"] == frames["unused"]
    assert frames["unused"][0].startswith("1 ")


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [ask for ask in ASKS if ask.found], ids=named)
async def test_two_keys_of_one_name_are_one_caller(house: House, ask: Ask) -> None:
    anna = house.by("anna")
    own = await hooked(anna, await waiting(anna))
    refused = (await ask.of(house.by("ben"), own)).raw.replace(own.encode(), b"")
    assert await differs(house.by("anna again"), ask, own, refused)


async def test_a_revoked_key_is_refused_and_the_tasks_stay(house: House) -> None:
    revoked, kept = house.by("anna again"), house.by("anna")
    task_id = await NEW.send(revoked, "hers")
    async with beside(house.store) as store:
        assert await store.keys.revoke(house.ids["anna again"], 1)
    async with asyncio.timeout(DEADLINE_S):  # it takes a second: tests/auth has a clock of its own
        while (await NEW.get(revoked, task_id)).status != 401:
            pass
    for speaker in ALL:
        assert (await speaker.get(revoked, task_id)).status == 401
        assert (await speaker.get(kept, task_id)).result
