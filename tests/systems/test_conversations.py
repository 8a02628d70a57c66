"""Conversations in every system: an agent that asks, one that fails, one that answers with a message."""

from typing import Any

import pytest

from tests.systems.conftest import Site
from tests.systems.speakers import ALL, BEEOS, EVOAI, KAOS, NEW, OLD, PROTOAGENT, Speaker, task_of

STREAMS = {BEEOS: "SendStreamingMessage", EVOAI: "message/stream", PROTOAGENT: "message/stream", OLD: "message/stream"}


def plain(state: str) -> str:
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def named(speaker: Speaker) -> str:
    return speaker.name


@pytest.mark.parametrize("speaker", ALL, ids=named)
async def test_an_agent_asks_and_is_answered(served: Site, speaker: Speaker) -> None:
    asked = (await speaker.call(served, speaker.methods[0], speaker.said("ask"))).result
    asked = asked.get("task", asked)
    assert plain(asked["status"]["state"]) == "input-required"
    assert "Which?" in str(asked["status"]["message"])
    answer = speaker.said("Lyon", task_id=asked["id"])
    done = (await speaker.call(served, speaker.methods[0], answer)).result
    assert task_of(done) == asked["id"]
    done = done.get("task", done)
    assert plain(done["status"]["state"]) == "completed"
    assert "'Lyon'" in str(done["artifacts"])


@pytest.mark.parametrize("speaker", STREAMS, ids=named)
async def test_a_stream_ends_where_the_agent_asks(served: Site, speaker: Speaker) -> None:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": STREAMS[speaker], "params": speaker.said("ask")}
    frames = await served.stream(speaker.at("desk"), body, **speaker.headers)
    assert speaker.state(frames[-1]) == "input-required"
    assert "Which?" in frames[-1].text


@pytest.mark.parametrize("speaker", ALL, ids=named)
async def test_a_message_to_a_task_that_has_ended_is_refused(served: Site, speaker: Speaker) -> None:
    task_id = await speaker.send(served, "x")
    told = await speaker.call(served, speaker.methods[0], speaker.said("more", task_id=task_id))
    assert told.error["code"] in (-32004, -32602)


@pytest.mark.parametrize("speaker", [BEEOS, EVOAI], ids=named)
async def test_an_agent_that_answers_directly_makes_a_task_where_there_are_only_tasks(
    served: Site, speaker: Speaker
) -> None:
    task_id = await speaker.send(served, "hello", agent="direct")
    assert speaker.shows((await speaker.get(served, task_id, agent="direct")).result)
    body = {"jsonrpc": "2.0", "id": 1, "method": STREAMS[speaker], "params": speaker.said("hello")}
    frames = await served.stream(speaker.at("direct"), body, **speaker.headers)
    assert speaker.state(frames[-1]) == "completed"
    message = (await NEW.call(served, NEW.methods[0], NEW.said("hello"), agent="direct")).result["message"]
    assert message["parts"] == [{"text": "hello"}]


@pytest.mark.parametrize("speaker", [BEEOS, EVOAI, OLD, NEW], ids=named)
async def test_an_agent_that_may_answer_with_a_message_makes_a_task_where_there_are_only_tasks(
    served: Site, speaker: Speaker
) -> None:
    for text in ("hello", "report"):
        told = await speaker.call(served, speaker.methods[0], speaker.said(text), "auto")
        if speaker in (BEEOS, EVOAI) or text == "report":
            task_id = task_of(told.result)
            assert speaker.shows((await speaker.get(served, task_id, agent="auto")).result)
        else:
            message = told.result.get("message", told.result)
            assert message["role"] in ("ROLE_AGENT", "agent")
            assert message["parts"][0]["text"] == text


@pytest.mark.parametrize("speaker", [KAOS, PROTOAGENT], ids=named)
async def test_such_an_agent_makes_a_task_where_a_skill_names_it(served: Site, speaker: Speaker) -> None:
    for text in ("hello", "report"):
        params = {**speaker.said(text), "metadata": {"skill": "auto"}}
        task = (await speaker.call(served, speaker.methods[0], params)).result
        assert speaker.shows(task)
        assert plain(task["status"]["state"]) == "completed"
        assert text in str(task["artifacts"])
        assert (await speaker.get(served, task_of(task))).result["id"] == task_of(task)


@pytest.mark.parametrize("speaker", ALL, ids=named)
async def test_nothing_of_an_exception_reaches_a_caller(served: Site, speaker: Speaker) -> None:
    told = await speaker.call(served, speaker.methods[0], speaker.said("fail"))
    assert b"secret" not in told.raw
    if speaker is not EVOAI:
        state = told.result.get("task", told.result)["status"]["state"]
        assert plain(state) == "failed"
