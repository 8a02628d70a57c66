"""SendMessage: waiting or not, history, context, tasks, media types (A2A 1.0 §3.1.1, §3.2, §3.4, §5.6, §5.7)."""

import asyncio
import uuid
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman.server import serving
from tests.full_stores import FullStore
from tests.spec.agents import Gates, house
from tests.spec.caller import DEADLINE_S, Caller, Told, params
from tests.spec.conftest import CONFIG, House, serving_lanes
from tests.spec.lanes import REST_03, REST_1, RPC_03, RPC_1, WITH_GRPC, Lane, over_grpc, over_grpc_1, text_view
from tests.spec.schema import TIMESTAMP

AT_ONCE = {"returnImmediately": True}


@over_grpc
async def test_a_blocking_send_answers_when_the_task_has_ended(caller: Caller, served: House) -> None:
    """§3.2.2: the final state with all artifacts; not before the agent is done."""
    name = f"blocking {caller.lane.name}"
    sending = asyncio.create_task(caller.send(f"wait {name}"))
    await served.gates.reached[name].wait()
    assert not sending.done()
    served.gates.open[name].set()
    task = (await sending).task
    assert (task.state, task.text) == ("completed", "done")


@pytest.mark.parametrize(("text", "state"), [("ask", "input-required"), ("login", "auth-required")])
@over_grpc
async def test_a_blocking_send_answers_when_the_task_waits_for_its_caller(
    caller: Caller, text: str, state: str
) -> None:
    """§3.2.2: an interrupted state ends the wait; the question is in the status."""
    task = (await caller.send(text)).task
    assert (task.state, task.said) == (state, "Which?" if text == "ask" else "Who are you?")


@over_grpc
async def test_return_immediately_answers_while_the_agent_works(caller: Caller, served: House) -> None:
    """§3.2.2 `returnImmediately` (0.3: `blocking: false`): the task is there, not ended, and can be read at once."""
    name = f"at once {caller.lane.name}"
    task = (await caller.send(f"wait {name}", configuration=AT_ONCE)).task
    assert task.state in ("submitted", "working")
    assert (await caller.get(task.id)).task.state in ("submitted", "working")
    served.gates.open[name].set()
    async with caller.subscribe(task.id) as stream:
        if stream.told.failed is None:
            await stream.rest()
    assert (await caller.get(task.id)).task.state == "completed"


async def test_a_blocking_send_that_takes_too_long_answers_with_the_task_as_it_is(lane: Lane) -> None:
    """§3.2.2: after `blocking_timeout_s`; the task goes on."""
    gates = Gates()
    config = replace(CONFIG, blocking_timeout_s=0.05)
    async with serving(config, house(gates)) as url, aiohttp.ClientSession() as http:
        caller = Caller(http, url, lane)
        task = (await caller.send("wait late")).task
        assert task.state in ("submitted", "working")
        async with caller.subscribe(task.id) as stream:
            gates.open["late"].set()
            assert (await stream.rest())[-1].state == "completed"


def message_ids() -> dict[Lane, str]:
    """A message id for each lane: a UUID, by which a repeat is known."""
    return {lane: str(uuid.uuid4()) for lane in WITH_GRPC}


async def sent_before_the_store_is_full(
    served: House, store: FullStore, ids: dict[Lane, str]
) -> dict[Lane, asyncio.Task[Told]]:
    """Blocking sends in all lanes, at once since they take time. All agents end when nothing can be written."""
    sending = {
        lane: asyncio.create_task(served.caller(lane).send(f"wait {lane.name}", messageId=ids[lane]))
        for lane in WITH_GRPC
    }
    for lane in WITH_GRPC:
        await served.gates.reached[lane.name].wait()
    store.full = True
    for lane in WITH_GRPC:
        served.gates.open[lane.name].set()
    return sending


async def test_a_blocking_send_whose_end_cannot_be_written_waits_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """§3.2.2: the task is terminal or interrupted when a blocking send is answered, also after an outage of 2.5 s."""
    store = FullStore(monkeypatch)
    async with serving_lanes(CONFIG) as served:
        sending = await sent_before_the_store_is_full(served, store, message_ids())
        answered, _ = await asyncio.wait(sending.values(), timeout=2.5)
        assert not answered, "it is not answered before the task has ended"
        store.full = False
        for lane, sent in sending.items():
            task = (await sent).task
            assert (task.state, task.text) == ("completed", "done"), lane


async def test_one_that_cannot_wait_longer_is_unavailable_with_the_task_and_a_repeat_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """§3.2.2: never a state that is neither terminal nor interrupted, which would be taken for an answer."""
    store, ids = FullStore(monkeypatch), message_ids()
    async with serving_lanes(replace(CONFIG, blocking_timeout_s=4.0)) as served:
        sending = await sent_before_the_store_is_full(served, store, ids)
        replies = {lane: await sent for lane, sent in sending.items()}
        store.full = False
        for lane, told in replies.items():
            failed = told.failed
            assert failed is not None, (lane, told.result)
            task_id = failed.metadata["taskId"]
            assert "ask for the task by its id" in failed.message
            if lane.grpc:
                assert failed.status == 14
            else:
                assert (told.status, told.headers["Retry-After"]) == (503, "30"), lane
            again = served.caller(lane).send(f"wait {lane.name}", messageId=ids[lane])
            task = (await again).task
            assert (task.id, task.state, task.text) == (task_id, "completed", "done"), lane


async def asked_three_times(caller: Caller) -> Any:
    """A task with three messages of the caller."""
    task = (await caller.send("ask twice")).task
    await caller.send("this", taskId=task.id)
    return (await caller.send("yes", taskId=task.id)).task


@over_grpc_1
async def test_history_is_whole_cut_or_left_out(caller: Caller) -> None:
    """§3.2.4: unset sets no limit, 0 leaves the field out, n gives the n most recent."""
    task = await asked_three_times(caller)
    assert task.history is not None
    whole = task.history
    assert [text for text in whole if text in ("ask twice", "this", "yes")] == ["ask twice", "this", "yes"]
    for length, expected in ((None, whole), (0, None), (1, whole[-1:]), (2, whole[-2:]), (100, whole)):
        given = {} if length is None else {"historyLength": length}
        assert (await caller.get(task.id, **given)).task.history == expected
        listed = (await caller.list(contextId=task.context_id, **given)).tasks
        assert listed[0].history == expected
    for length, count in ((0, None), (1, 1)):
        sent = (await caller.send("say hi", configuration={"historyLength": length})).task
        assert (len(sent.history) if sent.history else None) == count
        async with caller.stream("say hi", configuration={"historyLength": length}) as stream:
            first = (await stream.rest())[0]
        assert len(first.raw.get("history", [])) == (count or 0)


@pytest.mark.parametrize("length", [-1, "x", 1.5, 2**40, [1]])
async def test_a_history_length_that_is_none_is_refused(caller: Caller, length: Any) -> None:
    """§3.2.4, §3.3.2: a validation error that names the field."""
    if not isinstance(length, list):
        assert "historyLength" in (await caller.get("x", historyLength=length)).refused("InvalidParams").violations
    told = await caller.send(configuration={"historyLength": length})
    assert "configuration.historyLength" in told.refused("InvalidParams").violations


@over_grpc
async def test_a_context_is_made_when_none_is_named(caller: Caller) -> None:
    """§3.4.1: a new one each time, in the answer."""
    first, second = (await caller.send()).task, (await caller.send()).task
    assert first.context_id
    assert first.context_id != second.context_id


@pytest.mark.parametrize("context", ["mine", "ünï/кontext?&#%00", "x" * 1024])
@over_grpc_1
async def test_a_context_of_the_caller_is_kept(caller: Caller, context: str) -> None:
    """§3.4.1: accepted and preserved, in the task, in its messages and in ListTasks."""
    task = (await caller.send(contextId=context)).task
    assert task.context_id == context
    assert {message.get("contextId") for message in task.raw["history"]} == {context}
    assert task.id in {listed.id for listed in (await caller.list(contextId=context)).tasks}


@over_grpc
async def test_a_second_task_may_be_made_in_a_context(caller: Caller) -> None:
    """§3.4.2: `contextId` without `taskId` starts a new task in it."""
    first = (await caller.send()).task
    second = (await caller.send(contextId=first.context_id)).task
    assert second.id != first.id
    assert second.context_id == first.context_id


@over_grpc
async def test_the_context_is_inferred_from_the_task(caller: Caller) -> None:
    """§3.4.2: `taskId` alone is enough; the message gets the context of the task."""
    task = (await caller.send("ask")).task
    done = (await caller.send("that", taskId=task.id)).task
    assert (done.id, done.context_id, done.state, done.text) == (task.id, task.context_id, "completed", "that")
    assert {message["contextId"] for message in done.raw["history"]} == {task.context_id}


@over_grpc
async def test_a_context_that_is_not_the_tasks_is_refused(caller: Caller) -> None:
    """§3.4.2: the task and the context must fit; nothing happens to the task."""
    task = (await caller.send("ask")).task
    told = await caller.send("that", taskId=task.id, contextId="another")
    assert "message.contextId" in told.refused("InvalidParams").violations
    assert (await caller.get(task.id)).task.state == "input-required"
    done = (await caller.send("that", taskId=task.id, contextId=task.context_id)).task
    assert done.state == "completed"


@over_grpc
async def test_a_task_that_is_unknown_is_not_found(caller: Caller) -> None:
    """§3.1.1: tasks are made by the server; an id that it did not give is TaskNotFoundError."""
    for task_id in ("unknown", str(uuid.uuid4())):
        (await caller.send(taskId=task_id)).refused("TaskNotFound")
        async with caller.stream(taskId=task_id) as stream:
            stream.told.refused("TaskNotFound")
        assert (await caller.get(task_id)).refused("TaskNotFound").metadata["taskId"] == task_id


@pytest.mark.parametrize(("text", "state"), [("say", "completed"), ("fail", "failed"), ("reject", "rejected")])
@over_grpc
async def test_a_task_that_has_ended_takes_no_message(caller: Caller, text: str, state: str) -> None:
    """§3.1.1: UnsupportedOperationError, by SendMessage and as a stream; terminal is absorbing (§4.1.3)."""
    task = (await caller.send(text)).task
    assert task.state == state
    (await caller.send("more", taskId=task.id)).refused("UnsupportedOperation")
    async with caller.stream("more", taskId=task.id) as stream:
        stream.told.refused("UnsupportedOperation")
    assert (await caller.get(task.id)).task == task


@over_grpc
async def test_a_task_that_was_canceled_takes_no_message(caller: Caller, served: House) -> None:
    """§3.1.1: as with every terminal state."""
    task = (await caller.send(f"wait never {caller.lane.name}", configuration=AT_ONCE)).task
    await caller.cancel(task.id)
    (await caller.send("more", taskId=task.id)).refused("UnsupportedOperation")


@over_grpc_1
async def test_referenced_tasks_reach_the_agent(caller: Caller) -> None:
    """§3.4.2 `referenceTaskIds`: those that are there. (0.3's proto has no such field for the answer.)"""
    first = (await caller.send()).task
    task = (await caller.send("references", referenceTaskIds=[first.id, "unknown"])).task
    assert task.artifacts is not None
    assert task.artifacts[0][0][1] == {first.id: "TASK_STATE_COMPLETED"}
    if caller.lane is not REST_03:
        assert task.raw["history"][0]["referenceTaskIds"] == [first.id, "unknown"]


@over_grpc
async def test_a_failed_task_tells_a_reference_and_nothing_of_the_exception(caller: Caller) -> None:
    """§4.1.3: the text stays in the log of the server."""
    task = (await caller.send("fail")).task
    assert task.state == "failed"
    assert "secret-exception-text" not in str(task.raw)
    assert task.said


@over_grpc
async def test_a_rejected_task_says_why(caller: Caller) -> None:
    """§4.1.3: rejected, with the agent's words."""
    task = (await caller.send("reject")).task
    assert (task.state, task.said) == ("rejected", "not this")


@pytest.mark.parametrize("modes", [["image/png"], ["application/json", "audio/*"]])
@over_grpc
async def test_output_modes_that_the_agent_cannot_give_are_refused(caller: Caller, modes: list[str]) -> None:
    """§3.2.2 `acceptedOutputModes`: ContentTypeNotSupportedError (§3.3.2)."""
    told = await caller.at("plain").send(configuration={"acceptedOutputModes": modes})
    assert "text/plain" in told.refused("ContentTypeNotSupported").message


@pytest.mark.parametrize(
    "modes", [[], ["text/plain"], ["image/png", "text/plain"], ["text/*"], ["*/*"], ["TEXT/PLAIN"]]
)
@over_grpc
async def test_output_modes_of_which_the_agent_gives_one_are_taken(caller: Caller, modes: list[str]) -> None:
    """§3.2.2: the client takes any of them."""
    assert (await caller.at("plain").send("hi", configuration={"acceptedOutputModes": modes})).task.text == "hi"


@pytest.mark.parametrize(
    "part",
    [
        {"data": {"a": 1}},
        {"raw": "AAAA", "mediaType": "image/png"},
        {"url": "https://example.org/x.png", "mediaType": "image/png"},
    ],
)
@over_grpc_1
async def test_a_content_type_that_the_agent_does_not_take_is_refused(caller: Caller, part: dict[str, Any]) -> None:
    """§3.1.1: ContentTypeNotSupportedError, which names the part; no task is made, also not by a stream."""
    context = f"content {caller.lane.name}"
    sent: dict[str, Any] = {"parts": [{"text": "hi"}, part], "contextId": context}
    assert "parts[1]" in (await caller.at("plain").send(**sent)).refused("ContentTypeNotSupported").message
    async with caller.at("plain").stream(**sent) as stream:
        stream.told.refused("ContentTypeNotSupported")
    assert (await caller.at("plain").list(contextId=context)).tasks == []


async def test_unknown_fields_are_ignored(caller: Caller) -> None:
    """§5.7: forward compatible, at every level."""
    told = await caller.call(
        "send",
        {
            **params(parts=[{"text": "say hi", "hue": "red"}], later={"a": [1]}),
            "configuration": {"colour": 1},
            "novelty": [{}],
        },
    )
    assert told.task.text == "say hi"
    assert (await caller.get(told.task.id, verbose=1)).task.state == "completed"


REQUIRED = {
    "message": lambda given: given.pop("message"),
    "message.messageId": lambda given: given["message"].pop("messageId"),
    "message.role": lambda given: given["message"].pop("role"),
    "message.parts": lambda given: given["message"].pop("parts"),
}


@pytest.mark.parametrize("op", ["send", "stream"])
@pytest.mark.parametrize("field", REQUIRED)
async def test_a_required_field_that_is_missing_is_named(caller: Caller, field: str, op: str) -> None:
    """§5.7, §3.3.2: rejected, with the field as it is spelled on the wire."""
    given = params()
    REQUIRED[field](given)
    async with caller.streamed(op, given) as stream:
        assert field in stream.told.refused("InvalidParams").violations


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("message.messageId", ""),
        ("message.messageId", "a\0b"),
        ("message.messageId", "m" * 1025),
        ("message.contextId", "c\0"),
        ("message.role", "ROLE_SYSTEM"),
        ("message.role", "ROLE_AGENT"),
        ("message.parts", []),
    ],
)
async def test_a_field_with_a_value_that_cannot_be_is_named(caller: Caller, field: str, value: Any) -> None:
    """§3.3.2: servers validate all input before they process it."""
    told = await caller.send(**{field.partition(".")[2]: value})
    assert field in told.refused("InvalidParams").violations


@pytest.mark.parametrize("part", [{}, {"text": "a", "url": "https://example.org"}, {"raw": "?"}, {"filename": "f"}])
async def test_a_part_holds_exactly_one_content(served: House, part: dict[str, Any]) -> None:
    """§4.1.6: a oneof, and bytes are base64; the part is named. In 0.3 the tag decides (0.3 §6.5)."""
    for lane in (RPC_1, REST_1, *((RPC_03, REST_03) if len(part) < 2 else ())):
        told = await served.caller(lane).send(parts=[{"text": "first"}, part])
        (field,) = told.refused("InvalidParams").violations
        assert field.startswith(("message.parts[1]", "message.content[1]")), field


@over_grpc
async def test_too_many_parts_are_refused(caller: Caller) -> None:
    """A limit on parts."""
    told = await caller.send(parts=[{"text": "say"}] * 21)
    assert "message.parts" in told.refused("InvalidParams").violations
    assert (await caller.send(parts=[{"text": "say"}] * 20)).task.state == "completed"


@over_grpc
async def test_timestamps_are_utc_with_milliseconds(caller: Caller) -> None:
    """§5.6.1: in tasks and in events (the schema checks all others)."""
    assert TIMESTAMP.fullmatch((await caller.send()).task.timestamp)


@over_grpc_1
async def test_a_direct_agent_answers_with_a_message(caller: Caller) -> None:
    """§3.1.1: a Message instead of a task, with a context (§3.4.1); blocking or not makes no difference (§3.2.2)."""
    for configuration in ({}, AT_ONCE):
        message = (await caller.at("direct").send("hi", configuration=configuration, contextId="dc")).message
        assert message["role"] in ("ROLE_AGENT", "agent")
        assert message["contextId"] == "dc"
        assert "taskId" not in message
    assert (await caller.at("direct").list(contextId="dc")).tasks == []


@over_grpc
async def test_a_direct_agent_streams_exactly_one_message(caller: Caller) -> None:
    """§3.1.2: a message-only stream holds one Message and closes."""
    async with caller.at("direct").stream("hi") as stream:
        frames = await stream.rest()
    assert [(frame.kind, frame.text) for frame in frames] == [("message", "hi")]


@over_grpc_1
async def test_an_agent_answers_with_a_message_or_a_task(caller: Caller) -> None:
    """§3.1.1: message by message; a message that needs no task is none, unless nobody waits for it."""
    auto, message_id = caller.at("auto"), str(uuid.uuid4())
    message = (await auto.send("hi", contextId="ac", messageId=message_id)).message
    assert (message["contextId"], text_view(message)) == ("ac", "hi")
    assert "taskId" not in message
    assert (await auto.send("hi", contextId="ac", messageId=message_id)).message == message
    assert (await auto.list(contextId="ac")).tasks == []
    for text, configuration in (("report", {}), ("hi", AT_ONCE)):
        task_id = (await auto.send(text, configuration=configuration)).task.id
        async with asyncio.timeout(DEADLINE_S):
            while (task := (await auto.get(task_id)).task).state != "completed":
                await asyncio.sleep(0)
        assert task.text == text


@over_grpc
async def test_an_agent_streams_a_message_or_a_task(caller: Caller) -> None:
    """§3.1.2: exactly one Message, or a Task and its updates."""
    async with caller.at("auto").stream("hi") as stream:
        assert [(frame.kind, frame.text) for frame in await stream.rest()] == [("message", "hi")]
    async with caller.at("auto").stream("report") as stream:
        frames = await stream.rest()
    assert frames[0].kind == "task"
    assert frames[-1].state == "completed"


@over_grpc
async def test_the_same_call_again_is_the_same_task(caller: Caller) -> None:
    """§3.3.1: idempotent by a message id that is a UUID, or by an `Idempotency-Key`."""
    message_id = str(uuid.uuid4())
    first = (await caller.send(messageId=message_id)).task
    assert (await caller.send(messageId=message_id)).task == first
    assert (await caller.send("say other", messageId=message_id)).task.id != first.id
    key = {"Idempotency-Key": message_id}
    keyed = (await caller.send(messageId="plain", headers=key)).task
    assert (await caller.send(messageId="plain", headers=key)).task == keyed
    (await caller.send("say other", messageId="plain", headers=key)).refused("InvalidParams")


@over_grpc
async def test_a_message_to_a_working_task_is_kept(caller: Caller, served: House) -> None:
    """§3.4.2: further messages refine a task; this one goes into its history."""
    name = f"further {caller.lane.name}"
    task = (await caller.send(f"wait {name}", configuration=AT_ONCE)).task
    await served.gates.reached[name].wait()
    more = (await caller.send("and this", taskId=task.id, configuration=AT_ONCE)).task
    assert more.history is not None
    assert more.history[-1] == "and this"
    served.gates.open[name].set()
