"""Decoding protoAgent: where a skill is named, and the aliases over HTTP."""

import json
from typing import Any

import pytest

from dragoman.dialects.api import RestRequest
from dragoman.dialects.protoagent import JSONRPC, REST
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.operations import CreatePushConfig, GetTask, ListPushConfigs, Operation, PushConfig, SendMessage

MESSAGE = {"role": "user", "parts": [{"text": "hi"}]}


def rest(route: str, task_id: str, body: bytes = b"") -> Operation:
    assert REST.decode_rest is not None
    return REST.decode_rest(RestRequest(route, {"id": task_id}, {}, body))


@pytest.mark.parametrize(
    ("metadata", "skill"),
    [
        ({"skill": "a"}, "a"),
        ({"skillHint": "b"}, "b"),
        ({"skill": "a", "skillHint": "b"}, "a"),
        ({"skill": "", "skillHint": 7}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("where", ["params", "message"])
def test_the_skill_is_named_or_hinted_at(where: str, metadata: dict[str, Any], skill: str | None) -> None:
    said: dict[str, Any] = {**MESSAGE, "metadata": metadata} if where == "message" else MESSAGE
    params = {"message": said} if where == "message" else {"message": said, "metadata": metadata}
    operation = JSONRPC.decode("message/send", json.dumps(params).encode())
    assert isinstance(operation, SendMessage)
    assert operation.skill == skill


def test_the_aliases_name_the_task_in_their_path() -> None:
    assert rest("GetTask", "t1") == GetTask(id="t1")
    assert rest("ListTaskPushNotificationConfigs", "t1") == ListPushConfigs(task_id="t1")
    config = CreatePushConfig(config=PushConfig(url="https://example.com/h", task_id="t1", token="s"))
    bare = b'{"url":"https://example.com/h","token":"s"}'
    assert rest("CreateTaskPushNotificationConfig", "t1", bare) == config
    wrapped = b'{"pushNotificationConfig":' + bare + b"}"
    assert rest("CreateTaskPushNotificationConfig", "t1", wrapped) == config
    with pytest.raises(MethodNotFound):
        rest("SendMessage", "t1")
    with pytest.raises(InvalidParams):
        rest("GetTask", "")
