"""Registering webhooks: what a header cannot carry is refused by its name, and no secret ever comes back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects import beeos, evoai, kaos, protoagent, v03, v1
from dragoman.dialects.api import Dialect, RestRequest
from dragoman.dialects.beeos import REST as BEEOS_REST
from dragoman.dialects.evoai.encode import authorization
from dragoman.model.errors import A2AError, InvalidParams, PushNotificationNotSupported
from dragoman.model.operations import (
    CreatePushConfig,
    DeletePushConfig,
    GetPushConfig,
    ListPushConfigs,
    PushConfig,
    SendMessage,
)

URL = "https://example.com/h"
SECRET = "0123456789abcdef"
EVERY = (
    *(v1.JSONRPC, v1.REST, v03.JSONRPC, v03.REST, v03.REST_TWICE, beeos.JSONRPC, BEEOS_REST, evoai.JSONRPC),
    *(protoagent.JSONRPC, protoagent.REST, kaos.JSONRPC),
)
RPC = {
    "v1": (v1.JSONRPC, "CreateTaskPushNotificationConfig"),
    "v03": (v03.JSONRPC, "tasks/pushNotificationConfig/set"),
    "beeos": (beeos.JSONRPC, "SetPushNotificationConfig"),
    "evoai": (evoai.JSONRPC, "tasks/pushNotificationConfig/set"),
    "protoagent": (protoagent.JSONRPC, "tasks/pushNotificationConfig/set"),
}
SENDS = {
    name: (dialect, "SendMessage" if name in ("v1", "beeos") else "message/send") for name, (dialect, _) in RPC.items()
}


def registered(name: str, config: dict[str, Any]) -> PushConfig:
    dialect, method = RPC[name]
    params = {"taskId": "t", **config} if name == "v1" else {"taskId": "t", "pushNotificationConfig": config}
    operation = dialect.decode(method, json.dumps(params).encode())
    assert isinstance(operation, CreatePushConfig)
    return operation.config


def refused_field(name: str, config: dict[str, Any]) -> str:
    with pytest.raises(InvalidParams) as refused:
        registered(name, config)
    (violation,) = refused.value.violations
    return violation[0].removeprefix("pushNotificationConfig.")


@pytest.mark.parametrize("name", RPC)
@pytest.mark.parametrize(
    "unsafe", ["a\r\nX-Evil: 1", "a\nb", "tab\t", "nul\0", "del\x7f", "\x85", "pass€", "🔑", "x" * 8193]
)
def test_a_token_that_no_header_can_carry_is_refused_by_its_name(name: str, unsafe: str) -> None:
    assert refused_field(name, {"url": URL, "token": unsafe}) == "token"
    authentication = {"schemes": ["Bearer"], "credentials": unsafe}
    assert refused_field(name, {"url": URL, "authentication": authentication}) == "authentication.credentials"
    authentication = {"schemes": [f"B{unsafe}"], "credentials": "c"}
    assert refused_field(name, {"url": URL, "authentication": authentication}) == "authentication.scheme"


@pytest.mark.parametrize("name", RPC)
def test_a_token_of_latin_1_is_taken(name: str) -> None:
    assert registered(name, {"url": URL, "token": "pässwörd ~!"}).token == "pässwörd ~!"


@pytest.mark.parametrize("name", RPC)
@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "url"),
        ({"url": ""}, "url"),
        ({"url": URL, "secret": "x" * 257}, "secret"),
        ({"url": URL, "secret": "whsec_no base64 at all!"}, "secret"),
        ({"url": URL, "id": "x" * 1025}, "id"),
        ({"url": URL, "events": ["task.done"]}, "events"),
    ],
)
def test_what_is_missing_or_wrong_is_named(name: str, config: dict[str, Any], field: str) -> None:
    assert refused_field(name, config) == field


@pytest.mark.parametrize("name", RPC)
def test_a_secret_has_the_length_that_its_dialect_asks_for(name: str) -> None:
    assert registered(name, {"url": URL, "secret": "s" * 16}).secret == "s" * 16
    assert registered(name, {"url": URL, "secret": "s" * 256}).secret == "s" * 256
    if name == "evoai":  # its documentation sets no bounds
        assert registered(name, {"url": URL, "secret": "short"}).secret == "short"
    else:
        assert refused_field(name, {"url": URL, "secret": "s" * 15}) == "secret"


@pytest.mark.parametrize("name", RPC)
def test_events_have_one_spelling_however_they_came(name: str) -> None:
    events = ["task.completed", "TASK_STATE_CANCELED", "cancelled", "auth_required", "Input-Required", "task.artifact"]
    assert registered(name, {"url": URL, "events": events}).events == (
        *("completed", "canceled", "auth-required", "input-required", "artifact"),
    )


@pytest.mark.parametrize("name", SENDS)
@pytest.mark.parametrize("spelled", ["pushNotificationConfig", "taskPushNotificationConfig"])
def test_an_unsafe_webhook_within_a_send_is_refused_by_its_place(name: str, spelled: str) -> None:
    dialect, method = SENDS[name]
    kind = {"v1": {}, "evoai": {"type": "text"}}.get(name, {"kind": "text"})
    role = "ROLE_USER" if name == "v1" else "user"
    message = {"messageId": "m", "role": role, "parts": [{"text": "hi", **kind}]}
    params = {"message": message, "configuration": {spelled: {"url": URL, "token": "a\nb"}}}
    with pytest.raises(InvalidParams) as refused:
        dialect.decode(method, json.dumps(params).encode())
    ((field, _),) = refused.value.violations
    assert field.startswith("configuration.")
    assert field.endswith("NotificationConfig.token")


@pytest.mark.parametrize("name", SENDS)
@pytest.mark.parametrize("spelled", ["pushNotificationConfig", "taskPushNotificationConfig"])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_webhook_within_a_send_is_not_passed_over_wherever_it_stands(
    name: str, spelled: str, *, inside: bool, wrapped: bool
) -> None:
    """In the configuration or beside it, bare or wrapped: it is understood, or refused by its place."""
    dialect, method = SENDS[name]
    kind = {"v1": {}, "evoai": {"type": "text"}}.get(name, {"kind": "text"})
    role = "ROLE_USER" if name == "v1" else "user"
    message = {"messageId": "m", "role": role, "parts": [{"text": "hi", **kind}]}
    webhook: dict[str, Any] = {"url": URL, "token": "t", "secret": SECRET}
    given = {spelled: {"pushNotificationConfig": webhook} if wrapped else webhook}
    params = {"message": message, **({"configuration": given} if inside else given)}
    try:
        operation = dialect.decode(method, json.dumps(params).encode())
    except InvalidParams as refused:
        ((field, _),) = refused.violations
        assert (name, wrapped, field.endswith(f"{spelled}.url")) == ("v1", True, True)
        return
    assert isinstance(operation, SendMessage)
    assert operation.push_config == PushConfig(url=URL, token="t", secret=SECRET)


@pytest.mark.parametrize("name", ["v03", "beeos", "protoagent"])
def test_a_secret_beside_a_wrapped_webhook_counts_as_in_it(name: str) -> None:
    for rpc, method, params in (
        (*RPC[name], {"taskId": "t", "pushNotificationConfig": {"url": URL}, "secret": SECRET}),
        (*RPC[name], {"taskId": "t", "pushNotificationConfig": {"url": URL, "secret": SECRET}, "secret": "s" * 16}),
    ):
        operation = rpc.decode(method, json.dumps(params).encode())
        assert operation == CreatePushConfig(config=PushConfig(url=URL, task_id="t", secret=SECRET))
    message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    wrapped = {"pushNotificationConfig": {"url": URL}, "secret": SECRET}
    params = {"message": message, "configuration": {"pushNotificationConfig": wrapped}}
    sent = SENDS[name][0].decode(SENDS[name][1], json.dumps(params).encode())
    assert isinstance(sent, SendMessage)
    assert sent.push_config == PushConfig(url=URL, secret=SECRET)


@pytest.mark.parametrize("named", [{"taskId": "t"}, {"id": "t"}])
@pytest.mark.parametrize("url", ["url", "webhookUrl"])
def test_evo_ais_webhook_may_stand_bare_beside_the_tasks_id(named: dict[str, str], url: str) -> None:
    dialect, method = RPC["evoai"]
    operation = dialect.decode(method, json.dumps({**named, url: URL, "token": "s"}).encode())
    assert operation == CreatePushConfig(config=PushConfig(url=URL, task_id="t", token="s"))


@pytest.mark.parametrize("spelled", ["pushNotificationConfig", "taskPushNotificationConfig"])
@pytest.mark.parametrize("inside", [True, False])
def test_kaos_refuses_a_webhook_rather_than_pass_it_over(spelled: str, inside: bool) -> None:
    webhook = {spelled: {"url": URL}}
    params = {
        "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]},
        **({"configuration": webhook} if inside else webhook),
    }
    with pytest.raises(PushNotificationNotSupported):
        kaos.JSONRPC.decode("SendMessage", json.dumps(params).encode())


@pytest.mark.parametrize(
    "header", ["Host", "Content-Length", "content-type", "webhook-id", "Transfer-Encoding", "X-Dragoman-Seq", "a b", ""]
)
def test_evo_ais_key_may_not_take_a_header_that_the_call_needs(header: str) -> None:
    authentication = {"type": "apikey", "key": "k", "headerName": header}
    if not header:
        config = registered("evoai", {"url": URL, "authentication": authentication})
        assert authorization(config) == [("X-API-Key", "k")]
    else:
        assert refused_field("evoai", {"url": URL, "authentication": authentication}) == "authentication.headerName"


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({"Authorization": "Bearer b"}, [("Authorization", "Bearer b")]),
        ({"authorization": "Basic b"}, [("Authorization", "Basic b")]),
        ({"x-api-key": "k"}, [("X-API-Key", "k")]),
        ({"X-Custom": "x"}, []),
        ({}, []),
    ],
)
def test_of_evo_ais_headers_the_one_that_authenticates_is_sent(
    headers: dict[str, str], sent: list[tuple[str, str]]
) -> None:
    assert authorization(registered("evoai", {"url": URL, "headers": headers})) == sent


def test_evo_ais_authorization_header_has_a_scheme() -> None:
    assert refused_field("evoai", {"url": URL, "headers": {"Authorization": "b"}}) == "headers.Authorization"


def outputs(dialect: Dialect, config: PushConfig) -> list[bytes]:
    """All that a dialect writes of a configuration."""
    given = PushConfig(url=URL, task_id="t")
    return [
        dialect.encode_result(CreatePushConfig(config=given), config),
        dialect.encode_result(GetPushConfig(task_id="t", id="c"), config),
        dialect.encode_result(ListPushConfigs(task_id="t"), (config, config)),
        dialect.encode_result(DeletePushConfig(task_id="t", id="c"), None),
    ]


MARK = "hush"
SECRETS = st.one_of(st.none(), st.text(max_size=20).map(lambda text: MARK + text))


@given(
    token=SECRETS,
    credentials=SECRETS,
    secret=SECRETS,
    scheme=st.sampled_from([None, "Bearer", "Basic", "ApiKey", "apikey"]),
    events=st.sampled_from([(), ("completed",), ("artifact", "failed")]),
)
def test_no_answer_holds_credentials_or_a_secret_nor_one_of_beeos_a_token(
    token: str | None, credentials: str | None, secret: str | None, scheme: str | None, events: tuple[str, ...]
) -> None:
    config = PushConfig(
        url=URL, id="c", task_id="t", token=token, credentials=credentials, secret=secret, scheme=scheme, events=events
    )
    for dialect in EVERY:
        shown = config if dialect.name == "beeos" else replace(config, token=None)
        for written in outputs(dialect, shown):
            assert MARK.encode() not in written


@given(
    name=st.sampled_from(sorted(RPC)),
    token=SECRETS,
    credentials=SECRETS,
    secret=SECRETS,
    scheme=st.sampled_from(["Bearer", "apikey", "", "no scheme"]),
    header=st.sampled_from(["X-Key", "Host", ""]),
)
def test_no_refusal_holds_a_token_credentials_or_secret(
    name: str, token: str | None, credentials: str | None, secret: str | None, scheme: str, header: str
) -> None:
    authentication = {"schemes": [scheme], "credentials": credentials, "headerName": header}
    config = {"url": URL, "token": token, "secret": secret, "authentication": authentication}
    written: list[bytes] = []
    try:
        accepted = registered(name, config)
        written = outputs(RPC[name][0], replace(accepted, token=None))
        push = RPC[name][0].push
        sent = [] if push is None else push.authorization(accepted)
    except A2AError as error:
        refusals = [(dialect.encode_error(error), dialect.http_error) for dialect in EVERY]
        written = [body for body, _ in refusals] + [more(error) or b"" for _, more in refusals if more is not None]
        sent = []
    assert written
    assert not any(MARK.encode() in each for each in written)
    assert not any(set(header_name + value) & set("\r\n\0") for header_name, value in sent)


def test_protoagents_alias_answers_flat_and_wrapped() -> None:
    assert protoagent.REST.decode_rest is not None
    bare = {"url": URL, "token": "s"}
    operation = None
    bodies = [bare, *({name: bare} for name in ("pushNotificationConfig", "taskPushNotificationConfig", "config"))]
    for body in bodies:
        request = RestRequest("CreateTaskPushNotificationConfig", {"task_id": "t"}, {}, json.dumps(body).encode())
        operation = protoagent.REST.decode_rest(request)
        assert operation == CreatePushConfig(config=PushConfig(url=URL, task_id="t", token="s"))
    assert operation is not None
    beside = json.dumps({"pushNotificationConfig": {"url": URL}, "secret": SECRET}).encode()
    request = RestRequest("CreateTaskPushNotificationConfig", {"task_id": "t"}, {}, beside)
    signed = CreatePushConfig(config=PushConfig(url=URL, task_id="t", secret=SECRET))
    assert protoagent.REST.decode_rest(request) == signed
    kept = PushConfig(url=URL, id="c", task_id="t", token="s")
    assert json.loads(protoagent.REST.encode_result(operation, kept)) == {
        "id": "c",
        "taskId": "t",
        "url": URL,
        "pushNotificationConfig": {"url": URL, "id": "c"},
    }
    listed = json.loads(protoagent.REST.encode_result(ListPushConfigs(task_id="t"), (kept,)))
    assert listed == [{"taskId": "t", "pushNotificationConfig": {"url": URL, "id": "c"}}]


def test_only_protoagent_answers_no_webhook_with_nothing() -> None:
    assert {dialect.name for dialect in EVERY if dialect.manners.absent_webhook_is_none} == {"protoagent"}
