"""`/openapi.json` and `/docs`: every operation that is served is described, and the page runs and loads nothing."""

from html.parser import HTMLParser

import aiohttp
import msgspec
import pytest
from msgspec import Struct

from dragoman.bindings.openapi import shapes
from dragoman.bindings.openapi.operations import A2A, OWN, ServedPaths, make_server_document
from dragoman.bindings.routes import REST, SERVER, Routes
from dragoman.config import Config
from dragoman.dialects.v1 import wire
from dragoman.dialects.v1.decode import METHODS
from dragoman.dialects.v1.operations import TABLE
from dragoman.model.operations import CancelTask, GetTask, ListPushConfigs, ListTasks, Operation, Subscribe
from dragoman.server import serving
from tests.bindings.conftest import Site
from tests.kit.agents import echoing

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


def test_every_path_of_the_server_itself_is_described_unless_another_api_has_it() -> None:
    described = {tuple(operation.path.strip("/").split("/")) for operation in OWN}
    others = {"chat", "models", "mcp", "openapi", "docs"}
    seen = {SERVER[path].endpoint for path in described & SERVER.keys()} | {"card"}
    assert seen == {route.endpoint for route in SERVER.values() if route.endpoint not in others} | {"card"}
    assert (".well-known", "agent-card.json") in described


@pytest.mark.parametrize(("shape", "read"), READS, ids=lambda each: each.__name__)
def test_a_request_is_described_with_the_fields_that_are_read(shape: type[Struct], read: type[Struct]) -> None:
    described = {field.encode_name for field in msgspec.structs.fields(shape)}
    spelled = {field.encode_name for field in msgspec.structs.fields(read) if not field.name.endswith("_")}
    assert described <= spelled
    assert spelled - described == ELSEWHERE.get(shape.__name__, set())


def test_a_server_without_metrics_and_keys_describes_neither() -> None:
    paths = make_server_document("1.2.3", ServedPaths("echo", metrics=False, keys=False))["paths"]
    assert DOCUMENT["paths"].keys() - paths.keys() == {"/metrics", "/.well-known/jwks.json"}


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
    assert {operation.name for operation in A2A} <= set(page.ids)
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
