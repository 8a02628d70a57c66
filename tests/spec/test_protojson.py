"""How requests of 1.0 may be spelled: ProtoJSON reads more than it writes (A2A 1.0 §5.5; ProtoJSON format)."""

from typing import Any

import pytest

from tests.spec.caller import Caller
from tests.spec.conftest import House
from tests.spec.lanes import REST_1, RPC_1, Lane


@pytest.fixture(params=[RPC_1, REST_1], ids=lambda lane: lane.name.replace(" ", "-"))
def caller(request: Any, served: House) -> Caller:
    """Both bindings of 1.0."""
    lane: Lane = request.param
    return served.caller(lane)


def message(**said: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "say hi"}], **said}


async def test_null_is_absent_wherever_it_is_no_value(caller: Caller) -> None:
    """ProtoJSON: `null` is accepted for every field and means that it is not set."""
    nothing = dict.fromkeys(["contextId", "taskId", "metadata", "extensions", "referenceTaskIds"])
    part = {"text": "say hi", **dict.fromkeys(["raw", "url", "data", "filename", "mediaType", "metadata"])}
    empty = dict.fromkeys(["acceptedOutputModes", "historyLength", "returnImmediately", "taskPushNotificationConfig"])
    for configuration in (None, empty):
        told = await caller.call(
            "send",
            {
                "message": message(parts=[part], **nothing),
                "configuration": configuration,
                "metadata": None,
                "tenant": None,
            },
        )
        assert told.task.text == "say hi"


async def test_names_may_be_those_of_the_proto(caller: Caller) -> None:
    """ProtoJSON: parsers accept both the lowerCamelCase name and the original one."""
    sent = {"message_id": "m", "role": "ROLE_USER", "context_id": "snake", "parts": [{"raw": "", "media_type": "a/b"}]}
    configuration = {"history_length": 0, "return_immediately": False, "accepted_output_modes": ["text/plain"]}
    task = (await caller.call("send", {"message": sent, "configuration": configuration})).task
    assert (task.context_id, task.history) == ("snake", None)
    assert task.artifacts == ((("file", b"", "a/b", None),),)
    page = await caller.call("list", {"context_id": "snake", "page_size": 1, "include_artifacts": True})
    assert (page.result["pageSize"], page.tasks[0].artifacts) == (1, task.artifacts)


async def test_enums_may_be_numbers_and_numbers_may_be_texts(caller: Caller) -> None:
    """ProtoJSON: enum values by number, integers in strings and without a fraction."""
    sent = message(role=1, contextId=f"numbers {caller.lane.name}")
    task = (await caller.call("send", {"message": sent, "configuration": {"historyLength": "1"}})).task
    assert task.history == ("say hi",)
    assert (await caller.get(task.id, historyLength="0")).task.history is None
    for status, count in ((3, 1), (2, 0), (0, 1)):
        assert (
            len((await caller.list(contextId=f"numbers {caller.lane.name}", status=status, pageSize="5")).tasks)
            == count
        )
    (await caller.list(status=99)).refused("InvalidParams")


@pytest.mark.parametrize("raw", ["AP-_", "AP+/", "AA", "AA==", "AAA", ""])
async def test_bytes_may_be_base64_of_either_alphabet_padded_or_not(caller: Caller, raw: str) -> None:
    """ProtoJSON `bytes`; answers have the standard alphabet, padded (the schema checks it)."""
    task = (await caller.call("send", {"message": message(parts=[{"raw": raw}])})).task
    assert task.artifacts is not None
    assert task.artifacts[0][0][0] == "file"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("message.metadata", []),
        ("message.extensions", "urn:x"),
        ("message.extensions[0]", [None]),
        ("message.parts", {}),
        ("message.parts[0]", [None]),
        ("message.parts[0]", ["text"]),
        ("message.parts[0].text", [{"text": 5}]),
        ("message.parts[0].raw", [{"raw": "?"}]),
        ("message.parts[0].raw", [{"raw": 5}]),
        ("message.parts[0].metadata", [{"text": "a", "metadata": 1}]),
        ("message.messageId", 5),
        ("message.referenceTaskIds", {}),
    ],
)
async def test_a_value_of_a_wrong_type_is_named_by_its_path(caller: Caller, field: str, value: Any) -> None:
    """§3.3.2: which parameter, and why."""
    name = field.split(".")[1].split("[")[0]
    told = await caller.call("send", {"message": message(**{name: value})})
    assert told.refused("InvalidParams").violations.keys() == {field}


async def test_a_number_beyond_a_double_is_named(served: House) -> None:
    """google.protobuf.Value: numbers are doubles, and neither infinite nor NaN."""
    body = (
        '{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER",'
        '"parts":[{"data":[1e400]}]}}}'
    )
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    async with served.http.post(f"{served.url}/agents/script", data=body, headers=headers) as answer:
        told = await answer.json()
    assert (told["id"], told["error"]["code"]) == (7, -32602)
    assert "message.parts[0].data" in str(told["error"]["data"])


@pytest.mark.parametrize("skill", ["nope", "do "])
async def test_a_skill_that_the_card_does_not_have_is_refused(caller: Caller, skill: str) -> None:
    """Invalid params; a skill that it has runs."""
    told = await caller.call("send", {"message": message(), "metadata": {"skill": skill}})
    assert "metadata.skill" in told.refused("InvalidParams").violations
    assert (await caller.call("send", {"message": message(), "metadata": {"skill": "do"}})).task.state == "completed"
