"""`/openapi.json` and `/docs`: every operation that is served is described, and the page runs and loads nothing."""

from html.parser import HTMLParser

import aiohttp
import msgspec
import pytest
from msgspec import Struct

from dragoman.bindings.http import error_response
from dragoman.bindings.openapi import shapes
from dragoman.bindings.openapi.a2a import A2A
from dragoman.bindings.openapi.calls import CALLS
from dragoman.bindings.openapi.chat import CHAT
from dragoman.bindings.openapi.legacy import LEGACY
from dragoman.bindings.openapi.operations import OPERATIONS, ServedPaths, make_server_document
from dragoman.bindings.openapi.own import OWN
from dragoman.bindings.openapi.refusals import HEADERS
from dragoman.bindings.openapi.responses import RESPONSES, ResponsesRequest
from dragoman.bindings.openapi.workers import WORKERS
from dragoman.bindings.routes import REST, REST_LEGACY, SERVER, WORKER_ACTIONS, Routes
from dragoman.config import Config
from dragoman.dialects.responses.decode import FIELDS, FieldUse
from dragoman.dialects.v1 import wire
from dragoman.dialects.v1.decode import METHODS
from dragoman.dialects.v1.operations import TABLE
from dragoman.model.errors import TooManyRequests, Unauthorized, Unavailable
from dragoman.model.operations import CancelTask, GetTask, ListPushConfigs, ListTasks, Operation, PushConfig, Subscribe
from dragoman.push.caller import make_headers
from dragoman.server import serving
from dragoman.store.outbox import Due
from tests.bindings.conftest import Site
from tests.kit.agents import echoing
from tests.push.rig import FORM, delivery

DOCUMENT = make_server_document("1.2.3", ServedPaths("echo"))
ROUTES = Routes(["echo"], "echo")


def query_of(operation: type[Operation]) -> type[Struct]:
    return shapes.query_of(TABLE[operation])


def read_by(operation: type[Operation]) -> type[Struct]:
    struct = METHODS[TABLE[operation].method].decoder.type
    assert isinstance(struct, type)
    return struct


READS: list[tuple[type[Struct], type[Struct]]] = [
    (shapes.SendMessageRequest, wire.WireSend),
    (shapes.SendMessageConfiguration, wire.WireConfiguration),
    (shapes.RequestMessage, wire.WireMessage),
    (shapes.RequestWebhook, wire.WirePushConfig),
    (shapes.RequestAuthentication, wire.WireAuthentication),
    (shapes.CancelTaskRequest, read_by(CancelTask)),
    (query_of(GetTask), read_by(GetTask)),
    (query_of(Subscribe), read_by(Subscribe)),
    (query_of(ListTasks), read_by(ListTasks)),
    (query_of(ListPushConfigs), read_by(ListPushConfigs)),
]

ELSEWHERE = {
    "SendMessageRequest": {"taskPushNotificationConfig", "pushNotificationConfig"},  # in the configuration
    "SendMessageConfiguration": {"pushNotificationConfig"},  # the name in 0.3
    "RequestWebhook": {"tenant", "taskId"},  # in the path
    "RequestAuthentication": {"schemes"},  # the name in 0.3
    "CancelTaskRequest": {"id", "tenant"},  # in the path
    "GetTaskQuery": {"id"},
    "SubscribeToTaskQuery": {"id", "metadata"},  # where `fromSeq` may be, too
    "ListTaskPushNotificationConfigsQuery": {"taskId"},
}
"""Fields that are read, but not described there."""


def test_every_operation_over_http_and_json_is_described_at_its_path() -> None:
    for operation in A2A:
        route = ROUTES.find(operation.path.replace("{", "").replace("}", "").encode())
        assert route.endpoint == "rest"
        assert operation.name.removesuffix("ByPost") == route.methods[operation.method]
    described = {(operation.path, operation.method) for operation in A2A}
    served = {("/" + "/".join(path), method) for path, methods in REST.items() for method in methods}
    assert {each for each in served if each[1] != "HEAD"} == described
    assert {operation.name.removesuffix("ByPost") for operation in A2A} == METHODS.keys()


def test_every_operation_of_03_is_described_at_its_path() -> None:
    described = {(operation.path, operation.method) for operation in LEGACY}
    served = {("/" + "/".join(path), method) for path, methods in REST_LEGACY.items() for method in methods}
    assert {each for each in served if each[1] != "HEAD"} == described
    for operation in LEGACY:
        route = ROUTES.find(operation.path.replace("{", "").replace("}", "").encode())
        assert (route.endpoint, route.legacy) == ("rest", True)
        assert operation.name.removesuffix("ByPost").removesuffix("V03") == route.methods[operation.method]


def test_every_path_of_openai_s_clients_is_described() -> None:
    described = {tuple(operation.path.strip("/").split("/")) for operation in CHAT}
    served = {path for path, route in SERVER.items() if route.endpoint in ("chat", "models")}
    assert described == served | {("v1", "models", "{id}")}


def test_every_path_of_responses_is_described_with_its_methods() -> None:
    described: dict[str, set[str]] = {}
    for operation in RESPONSES:
        described.setdefault(operation.path, set()).add(operation.method)
    served = {path: route for path, route in SERVER.items() if route.endpoint in ("responses", "conversations")}
    assert {tuple(path.strip("/").split("/")) for path in described if "{" not in path} == served.keys()
    for path, methods in described.items():
        route = ROUTES.find(path.replace("{id}", "some").encode())
        assert route.endpoint.startswith(("response", "conversation"))
        assert set(route.methods) - {"HEAD"} == methods
    read = {name for name, use in FIELDS.items() if use is FieldUse.USED}
    assert {field.encode_name for field in msgspec.structs.fields(ResponsesRequest)} == read


def test_every_action_of_workers_is_described_unless_it_is_for_this_package_alone() -> None:
    described = {operation.path.rpartition("/")[2] for operation in WORKERS}
    assert described == WORKER_ACTIONS - {"state", "log"}
    for operation in WORKERS:
        assert ROUTES.find(operation.path.replace("{agent}", "echo").encode()).endpoint == "workers"


def test_a_webhook_call_is_described_with_the_headers_that_are_sent() -> None:
    config = PushConfig(url="https://hooks.example", token="t", secret="s" * 16)
    traced = delivery(b"{}", 3, traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    due = Due(number=1, task_id="t", agent="a", config=config, host="", delivery=traced, attempts=0, made_ms=0)
    sent = make_headers(due, FORM, FORM, 0, lambda *about: "jwt")
    for call in CALLS:
        described = {name.lower(): said["required"] for name, said in call.headers.items()}
        assert sent.keys() == described.keys() | {"authorization", "content-type"}
    assert {name for name, always in described.items() if always} == {
        "webhook-id",
        "webhook-timestamp",
        "x-dragoman-seq",
    }


def test_a_refusal_is_described_with_the_headers_that_come_with_it() -> None:
    refusals = (TooManyRequests("max", "no", 3), Unavailable("no", 3), Unauthorized("no"))
    assert HEADERS.keys() == {type(each) for each in refusals}
    for each in refusals:
        sent = dict(error_response(each, 503, b"text/plain", b"").headers)
        assert {name.lower().encode() for name in HEADERS[type(each)]} <= sent.keys()
    refused = [answer for operation in OPERATIONS for status, answer in operation.answers.items() if status == "429"]
    assert len(refused) > len(A2A)
    assert all("Retry-After" in answer.headers for answer in refused)


def test_every_path_of_the_server_itself_is_described_unless_another_api_has_it() -> None:
    described = {tuple(operation.path.strip("/").split("/")) for operation in OWN}
    others = {"chat", "models", "responses", "conversations", "mcp", "server_card", "openapi", "docs"}
    seen = {SERVER[path].endpoint for path in described & SERVER.keys()} | {"card"}
    assert seen == {route.endpoint for route in SERVER.values() if route.endpoint not in others} | {"card"}
    assert (".well-known", "agent-card.json") in described


@pytest.mark.parametrize(("shape", "read"), READS, ids=lambda each: each.__name__)
def test_a_request_is_described_with_the_fields_that_are_read(shape: type[Struct], read: type[Struct]) -> None:
    described = {field.encode_name for field in msgspec.structs.fields(shape)}
    spelled = {field.encode_name for field in msgspec.structs.fields(read) if not field.name.endswith("_")}
    assert described <= spelled
    assert spelled - described == ELSEWHERE.get(shape.__name__, set())


def test_a_server_without_metrics_keys_and_workers_describes_none_of_them() -> None:
    document = make_server_document("1.2.3", ServedPaths("echo", metrics=False, keys=False, workers=False))
    work = {operation.path for operation in WORKERS}
    assert DOCUMENT["paths"].keys() - document["paths"].keys() == {"/metrics", "/.well-known/jwks.json", *work}
    assert "Workers" not in {tag["name"] for tag in document["tags"]}


def test_the_store_s_own_fields_are_not_described() -> None:
    part = DOCUMENT["components"]["schemas"]["Part"]
    assert {"text", "raw", "url", "data"} <= part["properties"].keys()
    assert not {"blob", "file"} & part["properties"].keys()


class Page(HTMLParser):
    """The page as a browser reads it: its elements, anchors and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        said = dict(attrs)
        self.attributes |= said.keys()
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name == "href" and value]


async def test_the_page_shows_every_operation_and_loads_nothing(served: Site) -> None:
    async with served.http.get("/docs") as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
        policy = answer.headers["Content-Security-Policy"]
        text = await answer.text()
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe", "form", "object"}
    assert not {name for name in page.attributes if name.startswith("on")} | (page.attributes & {"style", "src"})
    assert len(page.ids) == len(set(page.ids))
    assert {operation.name for operation in (*A2A, *LEGACY, *CHAT, *RESPONSES, *CALLS)} <= set(page.ids)
    for link in page.links:
        assert link == "openapi.json" or link.removeprefix("#") in page.ids, link


async def test_the_description_is_not_sent_twice_and_is_read_alone(served: Site) -> None:
    for path in ("/openapi.json", "/docs"):
        async with served.http.get(path) as answer:
            tag, body = answer.headers["ETag"], await answer.read()
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        async with served.http.get(path, headers={"If-None-Match": tag}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
        async with served.http.head(path) as answer:
            assert (answer.status, await answer.read()) == (200, b"")
            assert answer.headers["Content-Length"] == str(len(body))
        async with served.http.post(path, json={}) as answer:
            assert answer.status == 405


async def test_the_description_is_public_where_callers_need_keys() -> None:
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1, api_key="k" * 32)
    async with serving(config, [echoing("told", description="An agent")]) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/tasks") as answer:
            assert answer.status == 401
        async with http.get("/openapi.json") as answer:
            assert answer.status == 200
            document = await answer.json()
    assert document["paths"]["/health"]["get"]["security"] == []
    assert {} in document["security"]
    assert document["paths"]["/tasks"]["servers"][1]["variables"]["agent"]["default"] == "told"


async def test_a_server_that_poses_as_another_has_no_description() -> None:
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1, profile="beeos")
    async with serving(config, [echoing("told", description="An agent")]) as url, aiohttp.ClientSession(url) as http:
        for path in ("/openapi.json", "/docs"):
            async with http.get(path) as answer:
                assert answer.status == 404
