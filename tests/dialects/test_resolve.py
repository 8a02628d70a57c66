"""The dialect that a request gets (A2A 1.0 §3.6.2)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects import beeos, evoai, fasta2a, kaos, protoagent, python_a2a, resolve, v03, v1
from dragoman.dialects.api import Dialect, RestRequest
from dragoman.dialects.system import ByTask
from dragoman.model.errors import A2AError, MethodNotFound, VersionNotSupported

OFFICIAL = ["/", "/agents/echo"]
MOUNTS = [*OFFICIAL, "/echo", "/a2a", "/api/v1/a2a/echo"]
SLASH = b'{"id":"t"}'


def unknown_task(method: str, params: bytes, version: str | None, mount: str) -> Dialect:
    """The dialect of a call when no task decides."""
    found = resolve.of_call(method, params, version, mount)
    return found.otherwise if isinstance(found, ByTask) else found


def refusal(dialect: Dialect, method: str, params: bytes = SLASH) -> A2AError | None:
    try:
        dialect.decode(method, params)
    except A2AError as error:
        return error
    return None


def rest_refusal(dialect: Dialect) -> A2AError | None:
    assert dialect.decode_rest is not None
    try:
        dialect.decode_rest(RestRequest("GetTask", {"id": "t"}, {}, b""))
    except A2AError as error:
        return error
    return None


@pytest.mark.parametrize("mount", OFFICIAL)
@pytest.mark.parametrize("version", [None, "", " ", "0.3", "0.3.0", "0.3.26"])
def test_a_slash_method_is_0_3_with_or_without_its_version(version: str | None, mount: str) -> None:
    dialect = unknown_task("tasks/get", SLASH, version, mount)
    assert dialect is v03.JSONRPC
    assert refusal(dialect, "tasks/get") is None


UNTAGGED = {"message": {"role": "user", "messageId": "m", "parts": [{"text": "hi"}]}}


@pytest.mark.parametrize("mount", OFFICIAL)
@pytest.mark.parametrize("method", ["message/send", "message/stream"])
def test_a_send_without_version_and_tags_is_fasta2a(mount: str, method: str) -> None:
    assert resolve.of_call(method, json.dumps(UNTAGGED).encode(), None, mount) is fasta2a.JSONRPC
    assert resolve.of_call(method, json.dumps(UNTAGGED).encode(), "0.3", mount) is v03.JSONRPC


@pytest.mark.parametrize("mount", OFFICIAL)
@pytest.mark.parametrize(
    "message",
    [
        {"kind": "message", "parts": [{"text": "hi"}]},
        {"parts": [{"kind": "text", "text": "hi"}]},
        {"parts": [{"text": "hi"}, {"kind": "data", "data": {}}]},
        {"parts": [{"type": "text", "text": "hi"}]},
        {"parts": [{"file": {"uri": "https://example.com"}}]},
        {"parts": [{"text": "hi"}], "messageId": None},
        {"parts": []},
        {"role": "ROLE_USER"},
    ],
)
def test_any_sign_of_another_client_is_0_3(mount: str, message: dict[str, Any]) -> None:
    params = {"message": {**UNTAGGED["message"], **message}}
    assert resolve.of_call("message/send", json.dumps(params).encode(), None, mount) is v03.JSONRPC


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.parametrize(
    ("body", "at_shared_mounts"),
    [
        ({"content": {"type": "text", "text": "hi"}, "role": "user"}, python_a2a.MESSAGES),
        ({"parts": [{"type": "text", "text": "hi"}], "role": "user"}, python_a2a.MESSAGES),
        ({"messages": [], "conversation_id": "c"}, python_a2a.CONVERSATIONS),
        ({"content": {"type": "text", "text": "hi"}}, None),
        ({"jsonrpc": "1.0", "content": {}, "role": "user"}, None),
        ({"jsonrpc": None, "messages": []}, None),
        ({"id": 1, "method": "tasks/get", "params": {}}, None),
        ([], None),
    ],
)
def test_a_bare_message_is_python_a2a_where_no_system_has_the_mount(
    mount: str, body: object, at_shared_mounts: Dialect | None
) -> None:
    found = resolve.of_bare(json.dumps(body).encode(), mount)
    assert (None if found is None else found[1]) is (at_shared_mounts if mount in OFFICIAL else None)


@pytest.mark.parametrize("mount", OFFICIAL)
@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.2", " 1.0 "])
def test_a_method_of_1_0_with_its_version_is_1_0(version: str, mount: str) -> None:
    dialect = unknown_task("GetTask", SLASH, version, mount)
    assert dialect is v1.JSONRPC
    assert refusal(dialect, "GetTask") is None


@pytest.mark.parametrize("version", [None, ""])
def test_a_method_of_1_0_without_a_version_is_refused_on_a_pure_mount(version: str | None) -> None:
    assert resolve.of_call("SendStreamingMessage", b"{}", version, "/") is v1.JSONRPC, "KAOS has no streams"
    pure = unknown_task("GetTask", SLASH, version, "/agents/echo")
    error = refusal(pure, "GetTask")
    assert isinstance(error, VersionNotSupported)
    assert "A2A-Version: 1.0" in error.message
    assert b"-32009" in pure.encode_error(error)
    assert b"google.rpc.ErrorInfo" in pure.encode_error(error), "the caller writes 1.0, so it is told in 1.0"


def test_a_name_that_nobody_has_is_answered_at_the_root_as_kaos_does_unless_a_version_or_a_slash_says_else() -> None:
    told = resolve.of_call("Frobnicate", b"{}", None, "/")
    assert told is kaos.JSONRPC
    assert isinstance(told, Dialect)
    error = refusal(told, "Frobnicate")
    assert isinstance(error, MethodNotFound)
    assert told.encode_error(error) == b'{"code":-32601,"message":"Method not found: Frobnicate","data":null}'
    assert resolve.of_call("Frobnicate", b"{}", "1.0", "/") is v1.JSONRPC
    assert resolve.of_call("tasks/frobnicate", b"{}", None, "/") is v03.JSONRPC
    assert resolve.of_call("SubscribeToTask", b"{}", None, "/") is v1.JSONRPC, "only 1.0 has it here"
    assert resolve.of_call("Frobnicate", b"{}", None, "/agents/echo") is v1.JSONRPC


@pytest.mark.parametrize("mount", OFFICIAL)
def test_a_method_that_the_named_version_lacks_is_not_found(mount: str) -> None:
    for method, version in (("tasks/get", "1.0"), ("GetTask", "0.3")):
        dialect = unknown_task(method, SLASH, version, mount)
        assert dialect is (v1.JSONRPC if version == "1.0" else v03.JSONRPC)
        assert isinstance(refusal(dialect, method), MethodNotFound)


@pytest.mark.parametrize("mount", OFFICIAL)
@pytest.mark.parametrize(
    "version", ["0.2", "0.4", "1.1", "2.0", "1", "1.0-beta", "latest", "１.０", "1.0.0.0", "1.0, 0.3"]
)
def test_an_unknown_version_is_refused_in_the_words_of_the_method(version: str, mount: str) -> None:
    for method, error_of in (("tasks/get", v03.JSONRPC), ("GetTask", v1.JSONRPC)):
        dialect = unknown_task(method, SLASH, version, mount)
        error = refusal(dialect, method)
        assert isinstance(error, VersionNotSupported)
        assert dialect.encode_error is error_of.encode_error
    for legacy, rest in ((True, v03.REST), (False, v1.REST)):
        dialect = resolve.of_rest(legacy=legacy, version=version, mount=mount)
        assert isinstance(rest_refusal(dialect), VersionNotSupported)
        assert dialect.encode_error is rest.encode_error


@pytest.mark.parametrize("mount", OFFICIAL)
@pytest.mark.parametrize("version", [None, "0.3", "1.0", "2.0"])
def test_an_unknown_method_is_told_before_an_unknown_version(version: str | None, mount: str) -> None:
    for method in ("tasks/fly", "FlyTask", "", "\udcff"):
        dialect = unknown_task(method, SLASH, version, mount)
        error = refusal(dialect, method)
        assert isinstance(error, MethodNotFound)
        assert b"-32601" in dialect.encode_error(error)


@pytest.mark.parametrize("mount", OFFICIAL)
@pytest.mark.parametrize("version", [None, "", "0.3", "0.3.0"])
def test_paths_below_v1_are_0_3(version: str | None, mount: str) -> None:
    dialect = resolve.of_rest(legacy=True, version=version, mount=mount)
    assert dialect is v03.REST
    assert rest_refusal(dialect) is None


@pytest.mark.parametrize("mount", OFFICIAL)
def test_1_0_below_v1_is_refused_in_1_0(mount: str) -> None:
    dialect = resolve.of_rest(legacy=True, version="1.0", mount=mount)
    error = rest_refusal(dialect)
    assert isinstance(error, VersionNotSupported)
    assert "leave /v1 out" in error.message
    assert dialect.encode_error is v1.REST.encode_error


@pytest.mark.parametrize("mount", OFFICIAL)
def test_paths_of_1_0_with_its_version_are_1_0(mount: str) -> None:
    assert resolve.of_rest(legacy=False, version="1.0.1", mount=mount) is v1.REST


def test_paths_of_1_0_need_no_version_except_on_a_pure_mount() -> None:
    for mount in ("/", "/echo"):
        assert resolve.of_rest(legacy=False, version=None, mount=mount) is v1.REST
    error = rest_refusal(resolve.of_rest(legacy=False, version="", mount="/agents/echo"))
    assert isinstance(error, VersionNotSupported)
    assert "A2A-Version: 1.0" in error.message


@pytest.mark.parametrize("mount", OFFICIAL)
def test_0_3_on_a_path_of_1_0_is_sent_below_v1(mount: str) -> None:
    error = rest_refusal(resolve.of_rest(legacy=False, version="0.3", mount=mount))
    assert isinstance(error, VersionNotSupported)
    assert "/v1" in error.message


def test_the_official_python_clients_get_their_file_bytes_encoded_twice() -> None:
    python = "python-httpx/0.28.1"
    assert resolve.of_rest(legacy=True, version="0.3", user_agent=python) is v03.REST_TWICE
    assert resolve.of_rest(legacy=True, version=None, user_agent=python) is v03.REST_TWICE_0_3
    assert resolve.of_rest(legacy=True, version="0.3", user_agent="node") is v03.REST
    assert resolve.of_rest(legacy=False, version="1.0", user_agent=python) is v1.REST


def test_a_body_that_cannot_be_read_is_answered_by_the_version_alone() -> None:
    assert resolve.of_nothing("1.0.2") is v1.JSONRPC
    for version in (None, "", "0.3", "7", "garbage"):
        assert resolve.of_nothing(version) is v03.JSONRPC


BEEOS = b'{"message":{"role":"user","parts":[{"kind":"text","text":"x"}]}}'
KAOS = b'{"message":{"role":"user","parts":[{"type":"text","text":"x"}]},"contextId":"c"}'
UNTYPED = b'{"message":{"role":"user","parts":[{"text":"x"}]},"metadata":{"skill":"s"}}'
SDK_1 = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}'
SDK_03 = b'{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}'
EVO = b'{"message":{"role":"user","parts":[{"type":"text","text":"x"}],"messageId":"m"}}'
ONLY_TASK_ID = b'{"taskId":"t"}'

ASKED: list[tuple[str, str | None, str, bytes, Dialect]] = [
    ("/", None, "SendMessage", KAOS, kaos.JSONRPC),
    ("/", None, "SendMessage", UNTYPED, kaos.JSONRPC),
    ("/", None, "SendMessage", SDK_1, v1.JSONRPC),
    ("/", "1.0", "SendMessage", UNTYPED, v1.JSONRPC),
    ("/", "1.0", "GetTask", SLASH, v1.JSONRPC),
    ("/", None, "GetTask", SLASH, kaos.JSONRPC),
    ("/", None, "CancelTask", SLASH, kaos.JSONRPC),
    ("/", None, "ListTasks", b"{}", kaos.JSONRPC),
    ("/", None, "tasks/send", KAOS, kaos.JSONRPC),
    ("/", None, "message/send", SDK_03, v03.JSONRPC),
    ("/", None, "message/stream", KAOS, v03.JSONRPC),
    ("/a2a", None, "message/send", UNTYPED, protoagent.JSONRPC),
    ("/a2a", None, "message/stream", SDK_03, protoagent.JSONRPC),
    ("/a2a", "0.3", "tasks/get", SLASH, protoagent.JSONRPC),
    ("/a2a", "1.0", "SendMessage", SDK_1, v1.JSONRPC),
    ("/a2a", None, "SendMessage", SDK_1, v1.JSONRPC),
    ("/a2a", None, "tasks/fly", b"{}", protoagent.JSONRPC),
    ("/api/v1/a2a/echo", None, "message/send", EVO, evoai.JSONRPC),
    ("/api/v1/a2a/echo", None, "message/stream", UNTYPED, evoai.JSONRPC),
    ("/api/v1/a2a/echo", None, "message/stream", SDK_03, v03.JSONRPC),
    ("/api/v1/a2a/echo", "0.3", "tasks/get", SLASH, v03.JSONRPC),
    ("/api/v1/a2a/echo", None, "tasks/get", ONLY_TASK_ID, evoai.JSONRPC),
    ("/api/v1/a2a/echo", None, "tasks/get", SLASH, evoai.JSONRPC),
    ("/echo", "1.0", "SendMessage", BEEOS, beeos.JSONRPC),
    ("/echo", None, "SendMessage", BEEOS, beeos.JSONRPC),
    ("/echo", "1.0", "SendMessage", SDK_1, v1.JSONRPC),
    ("/echo", None, "message/send", BEEOS, beeos.JSONRPC),
    ("/echo", None, "message/send", SDK_03, v03.JSONRPC),
    ("/echo", "1.0", "GetTask", SLASH, beeos.JSONRPC),
    ("/echo", "1.0", "ListTasks", b'{"limit":5}', beeos.JSONRPC),
    ("/echo", "1.0", "ListTasks", b"{}", beeos.JSONRPC),
    ("/echo", "1.0", "ListTasks", b'{"pageSize":5}', v1.JSONRPC),
    ("/echo", "1.0", "GetExtendedAgentCard", b"{}", v1.JSONRPC),
    ("/echo", "0.3", "CompleteTask", SLASH, beeos.JSONRPC),
    ("/echo", "0.3", "SendMessage", BEEOS, beeos.JSONRPC),
    ("/echo", "0.3", "SendMessage", SDK_1, v03.JSONRPC),
    ("/echo", "0.3", "message/send", BEEOS, v03.JSONRPC),
    ("/echo", "0.3.0", "message/stream", UNTYPED, v03.JSONRPC),
    ("/echo", "0.3", "tasks/get", SLASH, v03.JSONRPC),
    ("/echo", "0.3", "tasks/cancel", SLASH, v03.JSONRPC),
    ("/echo", "0.3", "tasks/resubscribe", SLASH, v03.JSONRPC),
    ("/echo", "0.3", "tasks/list", b"{}", v03.JSONRPC),
    ("/echo", "0.3", "tasks/pushNotificationConfig/set", SLASH, v03.JSONRPC),
    ("/echo", "0.3", "agent/getAuthenticatedExtendedCard", b"{}", v03.JSONRPC),
    ("/echo", "0.3", "tasks/updateStatus", SLASH, beeos.JSONRPC),
    ("/echo", "0.3", "tasks/pushNotification/set", SLASH, beeos.JSONRPC),
    ("/echo", "1.0", "message/send", BEEOS, beeos.JSONRPC),
    ("/echo", "1.0", "message/send", SDK_03, v03.JSONRPC),
]


@pytest.mark.parametrize(("mount", "version", "method", "params", "dialect"), ASKED)
def test_a_mount_tells_its_own_system_from_the_official_ones(
    mount: str, version: str | None, method: str, params: bytes, dialect: Dialect
) -> None:
    assert unknown_task(method, params, version, mount).name == dialect.name
    assert unknown_task(method, params, version, mount).key == dialect.key


UNSUPPORTED: list[tuple[str, str, bytes, Dialect]] = [
    ("/echo", "SendMessage", SDK_1, v1.JSONRPC),
    ("/echo", "GetExtendedAgentCard", b"{}", v1.JSONRPC),
    ("/echo", "ListTasks", b'{"pageSize":5}', v1.JSONRPC),
    ("/echo", "message/send", SDK_03, v03.JSONRPC),
    ("/echo", "message/send", SDK_1, v03.JSONRPC),
    ("/echo", "SendMessage", BEEOS, beeos.JSONRPC),
    ("/echo", "message/send", BEEOS, beeos.JSONRPC),
    ("/echo", "GetTask", SLASH, beeos.JSONRPC),
    ("/echo", "tasks/resubscribe", SLASH, beeos.JSONRPC),
    ("/echo", "CompleteTask", SLASH, beeos.JSONRPC),
    ("/a2a", "SendMessage", SDK_1, v1.JSONRPC),
    ("/a2a", "message/send", SDK_03, v03.JSONRPC),
    ("/a2a", "message/sendStream", SDK_03, v03.JSONRPC),
    ("/api/v1/a2a/echo", "message/send", SDK_03, v03.JSONRPC),
    ("/", "SendMessage", KAOS, v1.JSONRPC),
    ("/agents/echo", "tasks/get", SLASH, v03.JSONRPC),
]


@pytest.mark.parametrize("version", ["9.9", "0.2", "latest"])
@pytest.mark.parametrize(("mount", "method", "params", "words_of"), UNSUPPORTED)
def test_a_version_that_is_not_spoken_is_refused_on_every_mount_that_negotiates(
    mount: str, method: str, params: bytes, words_of: Dialect, version: str
) -> None:
    dialect = unknown_task(method, params, version, mount)
    error = refusal(dialect, method, params)
    assert isinstance(error, VersionNotSupported)
    assert b"-32009" in dialect.encode_error(error)
    assert dialect.encode_error is words_of.encode_error


@pytest.mark.parametrize("own", [beeos.REST, protoagent.REST])
def test_a_version_that_is_not_spoken_is_refused_on_paths_that_only_one_system_has(own: Dialect) -> None:
    for version, refused in (("9.9", True), ("1.0", False), ("0.3", False), (None, False)):
        dialect = resolve.of_own_path(own, version)
        assert dialect.decode_rest is not None
        route = RestRequest("GetTask", {"id": "t"}, {"task_id": "t"}, b"")
        if refused:
            with pytest.raises(VersionNotSupported):
                dialect.decode_rest(route)
        else:
            dialect.decode_rest(route)


@pytest.mark.parametrize("method", ["message/send", "tasks/get", "tasks/subscribe"])
def test_evo_ai_has_no_versions(method: str) -> None:
    dialect = unknown_task(method, EVO, "9.9", "/api/v1/a2a/echo")
    assert dialect is evoai.JSONRPC


def test_an_unknown_method_is_told_before_an_unknown_version_also_where_vendors_are() -> None:
    for mount, words_of in (("/echo", beeos.JSONRPC), ("/a2a", protoagent.JSONRPC)):
        dialect = unknown_task("FlyTask", SLASH, "9.9", mount)
        assert dialect is words_of
        assert isinstance(refusal(dialect, "FlyTask"), MethodNotFound)


@pytest.mark.parametrize(
    ("mount", "version", "method", "stored"),
    [
        ("/", None, "tasks/get", {"0.3", "kaos", "fasta2a"}),
        ("/", None, "tasks/cancel", {"0.3", "kaos", "fasta2a"}),
        ("/", None, "tasks/resubscribe", {"0.3", "fasta2a"}),
        ("/agents/echo", None, "tasks/get", {"0.3", "fasta2a"}),
        ("/echo", "1.0", "GetTask", {"beeos", "1.0"}),
        ("/echo", "1.0", "SubscribeToTask", {"beeos", "1.0"}),
        ("/echo", None, "tasks/resubscribe", {"beeos", "0.3"}),
        ("/api/v1/a2a/echo", None, "tasks/get", {"evoai", "0.3"}),
    ],
)
def test_where_only_a_task_is_named_its_maker_decides(
    mount: str, version: str | None, method: str, stored: set[str]
) -> None:
    found = resolve.of_call(method, SLASH, version, mount)
    assert isinstance(found, ByTask)
    assert (found.id, set(found.stored)) == ("t", stored)


@given(
    st.text(max_size=5) | st.sampled_from(["GetTask", "tasks/get"]),
    st.none() | st.text(max_size=5) | st.sampled_from(["1.0", "0.3"]),
    st.sampled_from(MOUNTS),
)
def test_every_request_gets_a_dialect(method: str, version: str | None, mount: str) -> None:
    dialect = unknown_task(method, b"{}", version, mount)
    error = refusal(dialect, method)
    if error is not None:
        assert dialect.encode_error(error)
    for legacy in (True, False):
        rest = resolve.of_rest(legacy=legacy, version=version, mount=mount)
        error = rest_refusal(rest)
        if error is not None:
            assert rest.encode_error(error)
