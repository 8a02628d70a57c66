"""The version of a request, and the extensions it declares (A2A 1.0 §3.2.6, §3.3.4, §3.6, §4.6)."""

from typing import Any

import pytest

from dragoman.dialects.extensions import DEDUPE
from tests.spec.agents import OPTIONAL, OTHER, REQUIRED
from tests.spec.caller import Caller, params
from tests.spec.conftest import House
from tests.spec.lanes import REST_03, REST_1, RPC_03, RPC_1, Lane, over_grpc

RPCS = (RPC_1, RPC_03)
MESSAGE_03 = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "say hi"}]}


async def rpc(served: House, path: str, method: str, given: Any, **headers: str) -> tuple[int, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}
    async with served.http.post(served.url + path, json=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def rest(served: House, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    async with served.http.post(served.url + path, json=body, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.7", " 1.0 "])
async def test_1_0_is_named_with_or_without_its_patch(served: House, version: str) -> None:
    """§3.6: patch numbers mean nothing when versions are matched."""
    status, answer = await rpc(served, "/agents/script", "SendMessage", params(), **{"A2A-Version": version})
    assert (status, answer["result"]["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")
    status, answer = await rest(served, "/agents/script/message:send", params(), **{"a2a-version": version})
    assert (status, answer["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")


@pytest.mark.parametrize("version", [None, "", "0.3", "0.3.0"])
async def test_no_version_is_0_3(served: House, version: str | None) -> None:
    """§3.6.2: an empty version is 0.3, whose clients do not know the header."""
    headers = {} if version is None else {"A2A-Version": version}
    status, answer = await rpc(served, "/agents/script", "message/send", {"message": MESSAGE_03}, **headers)
    assert (status, answer["result"]["kind"]) == (200, "task")
    status, answer = await rest(served, "/agents/script/v1/message:send", {"message": MESSAGE_03}, **headers)
    assert (status, answer["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")


async def test_the_version_may_stand_in_the_query(served: House) -> None:
    """§3.6.1: for those who cannot set headers, as a browser's EventSource."""
    status, answer = await rpc(served, "/agents/script?A2A-Version=1.0", "SendMessage", params())
    assert (status, "task" in answer["result"]) == (200, True)
    status, _ = await rest(served, "/agents/script/message:send?A2A-Version=1.0", params())
    assert status == 200
    status, answer = await rpc(served, "/agents/script?A2A-Version=9.9", "SendMessage", params())
    assert answer["error"]["code"] == -32009


async def test_the_header_wins_over_the_query(served: House) -> None:
    """§3.2.6: the header is the way over HTTP."""
    headers = {"A2A-Version": "1.0"}
    _, answer = await rpc(served, "/agents/script?A2A-Version=0.3", "SendMessage", params(), **headers)
    assert "task" in answer["result"]


@pytest.mark.parametrize("version", ["0.2", "0.9", "1.1", "2.0", "1", "latest", "1.0;drop", "１.０"])
async def test_a_version_that_is_not_spoken_is_refused(served: House, version: str) -> None:
    """§3.6.2: VersionNotSupportedError, in the words of the binding, before anything is done."""
    context = f"version {version}"
    header = {"A2A-Version": version.encode().decode("latin-1")}
    for lane in RPCS:
        told = await served.caller(lane).send(contextId=context, headers=header)
        assert "1.0" in told.refused("VersionNotSupported").message
    for lane in (REST_1, REST_03):
        told = await served.caller(lane).send(contextId=context, headers=header)
        failed = told.refused("VersionNotSupported")
        assert failed.metadata["supportedVersions"] == "1.0,0.3"
    assert (await served.caller(RPC_1).list(contextId=context)).tasks == []


async def test_a_stream_of_an_unknown_version_is_refused_in_plain_json(caller: Caller) -> None:
    """§3.6.2, §9.4.2: nothing is streamed, so the answer is no stream."""
    async with caller.stream(headers={"A2A-Version": "7.0"}) as stream:
        stream.told.refused("VersionNotSupported")


async def test_a_1_0_call_without_a_version_is_refused_where_only_the_official_dialects_are(served: House) -> None:
    """§3.6.2: empty is 0.3, which has no `SendMessage`; the message says which header is missing."""
    for lane in (RPC_1, REST_1):
        failed = (await served.caller(lane).send(headers={"A2A-Version": ""})).refused("VersionNotSupported")
        assert "A2A-Version: 1.0" in failed.message


async def test_a_1_0_call_without_a_version_is_understood_at_the_root(served: House) -> None:
    """At `/` the roles and the path tell it."""
    status, answer = await rpc(served, "/", "SendMessage", params())
    assert (status, "task" in answer["result"]) == (200, True)
    status, answer = await rest(served, "/message:send", params())
    assert (status, "task" in answer) == (200, True)


@pytest.mark.parametrize(("method", "version"), [("SendMessage", "0.3"), ("message/send", "1.0"), ("send", "1.0")])
async def test_a_method_of_the_other_version_is_not_found(served: House, method: str, version: str) -> None:
    """§3.6.2: a version that was named holds."""
    status, answer = await rpc(served, "/agents/script", method, params(), **{"A2A-Version": version})
    assert (status, answer["error"]["code"]) == (200, -32601)


async def test_each_version_has_its_own_paths(served: House) -> None:
    """§3.6.2: 0.3's HTTP+JSON is below `/v1`, that of 1.0 is not."""
    status, _ = await rest(served, "/agents/script/v1/message:send", params(), **{"A2A-Version": "1.0"})
    assert status == 400
    status, _ = await rest(served, "/agents/script/message:send", params(), **{"A2A-Version": "0.3"})
    assert status == 400


def echo(lane: Lane) -> str:
    """The header in which the lane's version names extensions."""
    return "A2A-Extensions" if lane.version == "1.0" else "X-A2A-Extensions"


@pytest.mark.parametrize("name", ["A2A-Extensions", "X-A2A-Extensions"])
@over_grpc
async def test_extensions_that_are_active_are_echoed(caller: Caller, name: str) -> None:
    """§3.2.6, §4.6.1: those the agent has, in the header of the caller's version; unknown ones are ignored (§4.6.3)."""
    wanted = {name: f"https://example.org/unknown/v9, {OPTIONAL}"}
    echoed = echo(caller.lane)
    told = await caller.send("extensions", headers=wanted)
    assert told.headers[echoed] == OPTIONAL
    assert [each for each in told.headers if each.lower().endswith("a2a-extensions")] == [echoed.lower()]
    async with caller.stream("say hi", headers=wanted) as stream:
        assert stream.told.headers[echoed] == OPTIONAL


@over_grpc
async def test_several_extensions_may_come_in_one_header_or_in_several(served: House, lane: Lane) -> None:
    """§3.2.6 with RFC 9110 §5.3: a comma list."""
    told = await served.caller(lane).send(headers={"A2A-Extensions": f"{OTHER} ,{OPTIONAL}"})
    assert sorted(told.headers[echo(lane)].split(", ")) == [OPTIONAL, OTHER]


@over_grpc
async def test_every_extension_of_the_card_is_active_when_it_is_asked_for(caller: Caller) -> None:
    """§3.2.6: those of the server, too, which it lists beside the agent's own."""
    told = await caller.send(headers={"A2A-Extensions": f"{DEDUPE}, {OPTIONAL}"})
    assert sorted(told.headers[echo(caller.lane)].split(", ")) == [OPTIONAL, DEDUPE]


@over_grpc
async def test_no_extension_is_echoed_that_nobody_asked_for(caller: Caller) -> None:
    """§4.6.1: extensions are opted into."""
    assert echo(caller.lane) not in (await caller.send()).headers
    unknown = await caller.send(headers={"A2A-Extensions": "https://example.org/unknown"})
    assert echo(caller.lane) not in unknown.headers


@over_grpc
async def test_the_agent_sees_the_extensions(caller: Caller) -> None:
    """§4.6.1: what is declared reaches the agent; of what it does not have it hears nothing, or may ignore it."""
    task = (await caller.send("extensions", headers={"A2A-Extensions": OPTIONAL})).task
    assert task.artifacts is not None
    assert OPTIONAL in task.artifacts[0][0][1]["extensions"]


async def test_a_required_extension_that_is_not_declared_is_refused(caller: Caller) -> None:
    """§3.3.4: ExtensionSupportRequiredError, which names it; declared, it is active."""
    strict = caller.at("strict")
    assert (await strict.send()).refused("ExtensionSupportRequired").metadata["uri"] == REQUIRED
    async with strict.stream() as stream:
        stream.told.refused("ExtensionSupportRequired")
    (await strict.send(headers={"A2A-Extensions": REQUIRED + "x"})).refused("ExtensionSupportRequired")
    for name in ("A2A-Extensions", "X-A2A-Extensions"):
        told = await strict.send("hi", headers={name: REQUIRED})
        assert (told.task.text, told.headers[echo(caller.lane)]) == ("hi", REQUIRED)


@over_grpc
async def test_a_task_is_read_and_canceled_without_the_required_extension(caller: Caller) -> None:
    """§3.3.4: what does not reach the agent needs no extension of it."""
    strict = caller.at("strict")
    task = (await strict.send("hi", headers={"A2A-Extensions": REQUIRED})).task
    assert (await strict.get(task.id)).task.state == "completed"
    (await strict.cancel(task.id)).refused("TaskNotCancelable")
