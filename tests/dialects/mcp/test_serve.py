"""Requests of MCP clients are read and answered: by cases, and with any bytes."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.mcp import answers, requests, tools
from dragoman.dialects.mcp.requests import ClientNotification, ClientRequest, ClientResponse, Greeting, SessionTerms
from dragoman.dialects.v03.fields import Fields
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.errors import A2AError, InvalidParams, InvalidRequest, NotFound, TooManyRequests
from dragoman.model.message import Artifact, Part, Role
from dragoman.model.task import STATES, Progress, Record, TaskState
from tests.kit import values

NOW = "2026-11-20T07:00:00.000Z"
KEY = "0199aaaa-0000-7000-8000-000000000001"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
WORDS = st.sampled_from(
    ["accept", "decline", "info", "2025-11-25", "data:text/plain;base64,AAAA", "data:,", "x"],
)
NAMES = [
    "protocolVersion", "capabilities", "elicitation", "form", "name", "arguments",
    "_meta", "progressToken", "level", "traceparent", "cursor", "requestId",
    "action", "content", "answer", "message", "data", "files",
    "url", "context_id", "task_id", "media_type",
]  # fmt: skip
FIELDS = st.sampled_from(NAMES)
PARAMS = st.recursive(
    WORDS | JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=6), max_leaves=12
)
OBJECTS = st.dictionaries(FIELDS, PARAMS, max_size=8)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | JSON},
    optional={"id": JSON, "method": st.sampled_from(["ping", "tools/call"]) | JSON, "params": OBJECTS | JSON}
    | {"result": OBJECTS | JSON, "error": JSON},
)


def arguments_of(params: bytes) -> object:
    """The arguments of a call of a tool, read."""
    return requests.decode_arguments(requests.decode_tool_call(params).arguments, "m1")


def read_or_refused(read: Callable[[], object]) -> None:
    """It gives something, or raises an error that can be told."""
    try:
        read()
    except A2AError as error:
        told = json.loads(answers.error(b"1", error))
        assert told["error"]["message"]


@given(st.binary() | MESSAGES.map(lambda body: json.dumps(body).encode()))
def test_any_bytes_are_a_message_or_an_error(body: bytes) -> None:
    read_or_refused(lambda: requests.decode(body))


@pytest.mark.parametrize(
    "read",
    [
        requests.decode_initialize,
        requests.decode_tool_call,
        arguments_of,
        requests.decode_cursor,
        requests.decode_level,
        requests.decode_cancelled,
        requests.decode_elicitation,
    ],
    ids=lambda read: read.__name__,
)
@given(params=OBJECTS.map(lambda body: json.dumps(body).encode()))
def test_any_params_are_understood_or_refused(read: Callable[[bytes], object], params: bytes) -> None:
    read_or_refused(lambda: read(params))


@given(params=st.binary())
def test_any_bytes_as_the_answer_to_a_form_are_understood_or_refused(params: bytes) -> None:
    read_or_refused(lambda: requests.decode_elicitation(params))


def test_messages_are_told_apart_and_ids_stay_as_they_came() -> None:
    assert requests.decode(b'{"jsonrpc":"2.0","id":"a\\u0062","method":"ping"}') == ClientRequest(
        b'"a\\u0062"', "ping", b"{}"
    )
    assert requests.decode(b'{"jsonrpc":"2.0","method":"x","params":null}') == ClientNotification("x", b"{}")
    assert requests.decode(b'{"jsonrpc":"2.0","id":"t/1","result":{}}') == ClientResponse("t/1", b"{}")
    assert requests.decode(b'{"jsonrpc":"2.0","id":7,"error":{"code":1}}') == ClientResponse("", None)


@pytest.mark.parametrize("raw", [b"null", b"1.5", b"true", b"{}", b'"' + b"x" * 2000 + b'"'])
def test_an_id_is_a_string_or_an_integer(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        requests.decode(b'{"jsonrpc":"2.0","id":' + raw + b',"method":"ping"}')


@pytest.mark.parametrize(
    ("version", "capabilities", "elicits"),
    [
        ("2025-11-25", {}, False),
        ("2025-11-25", {"elicitation": {}}, True),
        ("2025-11-25", {"elicitation": {"form": {}, "url": {}}}, True),
        ("2025-11-25", {"elicitation": {"url": {}}}, False),
        ("2025-06-18", {"elicitation": {}}, True),
        ("2025-03-26", {"elicitation": {}}, False),
    ],
)
def test_who_can_be_asked_with_a_form(version: str, capabilities: Any, elicits: bool) -> None:
    said = json.dumps({"protocolVersion": version, "capabilities": capabilities}).encode()
    assert requests.decode_initialize(said) == Greeting(version, elicits)


def test_a_token_stays_as_it_came() -> None:
    assert requests.decode_tool_call(b'{"name":"x","_meta":{"progressToken": "7"}}').token == b'"7"'
    assert requests.decode_tool_call(b'{"name":"x","_meta":{"progressToken": 7}}').token == b"7"
    with pytest.raises(InvalidRequest, match=r"_meta\.progressToken"):
        requests.decode_tool_call(b'{"name":"x","_meta":{"progressToken": {}}}')


def test_a_session_says_all_by_itself() -> None:
    for greeting in (Greeting("2025-11-25", True), Greeting("2025-03-26", False)):
        session_id = requests.encode_session(KEY, greeting)
        assert session_id.isascii()
        assert requests.decode_session(session_id) == SessionTerms(KEY, greeting.version, greeting.elicits)
    assert requests.decode_session(None) == SessionTerms()


@given(st.text() | st.from_regex(r"[0-9a-f-]{36}\.[0-9-]{10}\.(ask|tell)", fullmatch=True))
def test_any_other_session_is_not_found(text: str) -> None:
    try:
        assert requests.decode_session(text).key
    except NotFound:
        pass


@pytest.mark.parametrize(
    ("agent", "skill", "name"),
    [
        ("echo", None, "echo"),
        ("echo", "say", "echo__say"),
        ("a", "_b", "a___b"),
        ("a", "b__c", "a__b__c"),
    ],
)
def test_a_tool_is_named_after_its_agent_and_its_skill(agent: str, skill: str | None, name: str) -> None:
    assert tools.name_of(agent, skill) == name


IDS = st.text("ab_-.ä", min_size=1, max_size=70)


@given(IDS, st.none() | IDS, IDS, st.none() | IDS)
def test_names_of_tools_are_fit_for_models_and_differ(a: str, b: str | None, c: str, d: str | None) -> None:
    first, second = tools.name_of(a, b), tools.name_of(c, d)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", first), "as the tools of chat completions are named"
    assert (first == second) == ((a, b) == (c, d))


def profile(*skills: str, extended: tuple[str, ...] = ()) -> Profile:
    made = {name: AgentSkill(id=name, name=name, description=f"Does {name}", tags=()) for name in (*skills, *extended)}
    return Profile(
        id="x",
        name="X",
        description="An agent",
        version="1",
        skills=tuple(made[name] for name in skills),
        extended_skills=tuple(made[name] for name in extended),
    )


def test_skills_of_the_extended_card_are_for_callers_who_are_known() -> None:
    profiles = {"one": profile("a", extended=("b",)), "two": profile("c"), "none": profile()}
    names = [tool.name for tool in tools.tools(profiles, extended=False)]
    assert names == ["none", "one__a", "two"]
    names = [tool.name for tool in tools.tools(profiles, extended=True)]
    assert names == ["none", "one__a", "one__b", "two"]


@given(st.lists(st.none() | st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_progress_only_grows(reports: list[tuple[int, int] | None]) -> None:
    growing = answers.ProgressEncoder(b'"t"')
    told = [json.loads(growing.encode(None if at is None else Progress(*at), "x"))["params"] for at in reports]
    assert all(earlier["progress"] < later["progress"] for earlier, later in pairwise(told))
    assert all(params["progress"] <= params.get("total", 10) for params in told)
    assert all(params["progressToken"] == "t" for params in told)


def test_a_question_names_its_task() -> None:
    assert answers.task_of(answers.question_id("t1", 7)) == "t1"
    for other in ("", "t1", "t1/", "/7", "t1/x", "7"):
        assert not answers.task_of(other)


def test_an_error_names_the_field_and_the_fix() -> None:
    told = json.loads(answers.error(b"7", InvalidParams("cursor", "must be short")))
    assert (told["id"], told["error"]["code"]) == (7, -32602)
    assert told["error"]["data"] == [{"field": "cursor", "description": "must be short"}]
    assert answers.code(TooManyRequests("max", "too many", 1)) == -32000


def record(state: TaskState, *parts: Part, said: str | None = None) -> Record:
    message = None if said is None else values.say(said, Role.AGENT)
    artifacts = (Artifact(artifact_id="a/1 ü", parts=parts),) if parts else ()
    return values.record(values.head("t1", context_id="c1", dialect="mcp"), state, *artifacts, said=message, seq=3)


def result(of: Record, version: str = "2025-11-25") -> Any:
    return json.loads(answers.encode_task(of, version))


@pytest.mark.parametrize("state", STATES)
def test_every_state_says_how_to_go_on(state: TaskState) -> None:
    told = result(record(state, Part(text="so far"), said="because"))
    assert told["structuredContent"]["state"] == state.value[11:].lower().replace("_", "-")
    assert told["isError"] == (state in (TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED))
    last = told["content"][-1]["text"]
    assert "t1" in last or "c1" in last
    reason = state not in (TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED)
    assert told["structuredContent"].get("question") == ("because" if reason else None)


def test_what_is_said_at_the_end_is_the_text_where_there_is_no_artifact() -> None:
    told = result(record(TaskState.COMPLETED, said="all there is"))
    assert told["structuredContent"]["text"] == "all there is"
    assert "question" not in told["structuredContent"]
    assert told["content"][0]["text"] == "all there is"


LINKS = [
    "http://a.example", "https://a-b.example:8443/x%20y?z#1", "HTTP://LOCALHOST/",
    "http://127.0.0.1:80/", "http://[::1]:65535/x", "https://a_b.example?q=e",
]  # fmt: skip
NO_LINKS = [
    "", "report.pdf", "/files/x", "not a url", "javascript:alert(1)", "file:///etc/passwd", "http://", "http:/x",
    "http://[bad", "http://a.example:99999/", "http://1.2.3.4.5/", "http://256.1.1.1/", "http://[1.]/", "http://xn--/",
    "https://x@a.example\\@b.example/", "https://u:p@a.example/", "http://a.example/\n", "http://a..example/",
]  # fmt: skip


@pytest.mark.parametrize("url", LINKS)
def test_an_address_on_the_web_comes_as_a_link(url: str) -> None:
    block = result(record(TaskState.COMPLETED, Part(url=url)))["content"][0]
    assert (block["type"], block["uri"]) == ("resource_link", url)


@pytest.mark.parametrize("url", NO_LINKS)
def test_what_may_be_no_address_comes_as_text_since_strict_clients_would_refuse_all_of_it(url: str) -> None:
    told = result(record(TaskState.COMPLETED, Part(url=url)))
    assert told["content"][0] == {"type": "text", "text": url}
    assert url in told["structuredContent"]["artifacts"][0]["files"][0]["uri"]


def test_a_text_file_that_is_no_utf8_comes_as_bytes() -> None:
    told = result(record(TaskState.COMPLETED, Part(raw=b"\xff", media_type="text/plain", filename="a b")))
    resource = told["content"][0]["resource"]
    assert resource["blob"] == "/w=="
    assert resource["uri"] == "dragoman://tasks/t1/a%2F1%20%C3%BC/0/a%20b"


def test_arguments_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InvalidParams, match=r"arguments\.text: is no argument"):
        requests.decode_arguments(Fields({"text": "x"}, "arguments"), "m1")
