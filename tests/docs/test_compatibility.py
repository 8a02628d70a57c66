"""docs/compatibility.md and the tables that it names say what the code does."""

import re
from pathlib import Path

import pytest

from dragoman.bindings.routes import Routes
from dragoman.cli.topics import load_table
from dragoman.dialects import extensions, v03, v1
from dragoman.dialects.v03 import protobuf as v03_protobuf
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.errors import rest_error_status
from dragoman.dialects.v1 import protobuf as v1_protobuf
from dragoman.dialects.v1.decode import METHODS as METHODS_1
from dragoman.dialects.v1.errors import row
from dragoman.dialects.v1.protobuf.statuses import CODES
from dragoman.model import errors
from dragoman.model.errors import A2AError

PAGE = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")

INSTANCES: tuple[A2AError, ...] = (
    errors.ParseError(""),
    errors.InvalidRequest(""),
    errors.MethodNotFound(""),
    errors.InvalidParams("", ""),
    errors.InternalError(),
    errors.TaskNotFound(""),
    errors.TaskNotCancelable("", ""),
    errors.PushNotificationNotSupported(),
    errors.UnsupportedOperation(""),
    errors.ContentTypeNotSupported(""),
    errors.InvalidAgentResponse(""),
    errors.ExtendedAgentCardNotConfigured(""),
    errors.ExtensionSupportRequired(""),
    errors.VersionNotSupported(""),
    errors.AgentOffline(""),
    errors.TaskTimeout("", 1),
    errors.AgentFailed("", ""),
    errors.LeaseLost(),
    errors.AgentNotFound(""),
    errors.NotFound(""),
    errors.MethodNotAllowed(()),
    errors.UnsupportedMediaType(""),
    errors.PayloadTooLarge(0),
    errors.RequestTimeout(""),
    errors.Unavailable(""),
    errors.Unauthorized(""),
    errors.Forbidden(""),
    errors.TooManyRequests("", "", 1),
)


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


PATHS_OF_ONE_VERSION = ("/extendedAgentCard",)
ROWS = {name.strip("`"): meaning for section in load_table("operations").sections for name, meaning in section.rows}


def names_in(topic: str) -> list[str]:
    return [row[0].strip("`") for section in load_table(topic).sections for row in section.rows]


def test_every_error_is_in_the_table() -> None:
    declared = {kind.__name__ for kind in A2AError.__subclasses__() if kind.__module__ == errors.__name__}
    assert declared == {type(error).__name__ for error in INSTANCES} == set(names_in("errors"))


def test_the_table_of_errors_has_what_both_versions_answer() -> None:
    rows = {row[0].strip("`"): row[1] for section in load_table("errors").sections for row in section.rows}
    for error in INSTANCES:
        text = rows[type(error).__name__]
        assert text.startswith(f"{row(error).code}; `{row(error).reason}`; HTTP {row(error).http_status}")
        assert (f"(0.3: {rest_error_status(error)})" in text) != (rest_error_status(error) == row(error).http_status)
        alone = v1.JSONRPC.error_status(error) != 200
        assert alone == (v03.JSONRPC.error_status(error) != 200) == ("over JSON-RPC, too" in text)
        assert CODES[text.rpartition("gRPC ")[2].strip("`")] == v1_protobuf.GRPC.error_status(error)


def test_the_page_names_the_errors_that_have_another_status_in_0_3_over_grpc() -> None:
    other = {
        type(error).__name__
        for error in INSTANCES
        if v03_protobuf.GRPC.error_status(error) != v1_protobuf.GRPC.error_status(error)
    }
    assert {v03_protobuf.GRPC.error_status(error) for error in INSTANCES if type(error).__name__ in other} == {
        CODES["UNIMPLEMENTED"]
    }
    said = PAGE.replace("\n", " ").partition("it says `UNIMPLEMENTED` for ")[2].partition(".")[0]
    assert set(code(said)) == other


def test_every_method_of_both_versions_is_in_the_table_or_on_the_page() -> None:
    assert set(ROWS) == set(METHODS_1)
    assert {word for text in ROWS.values() for word in code(text)} | set(code(PAGE)) >= set(METHODS_03)


@pytest.mark.parametrize("name", ROWS)
def test_every_path_of_the_table_is_routed(name: str) -> None:
    routes = Routes(["echo"], "echo")
    requests = [re.fullmatch(r"(.+?) (/.+)", each) for each in code(ROWS[name])]
    found = [(each[1].split(" or "), each[2]) for each in requests if each]
    assert len(found) == 2
    for (verbs, path), mounts in zip(found, (("", "/agents/echo", "/echo"), ("", "/agents/echo")), strict=True):
        for mount in mounts[: 2 if path in PATHS_OF_ONE_VERSION else 3]:
            route = routes.find((mount + re.sub(r"{\w+}", "x1", path)).encode())
            for verb in verbs:
                assert route.methods[verb] == name


def test_the_table_of_extensions_has_every_uri() -> None:
    ours = {uri for uri in vars(extensions).values() if isinstance(uri, str) and uri.startswith("urn:dragoman:")}
    assert ours <= set(names_in("extensions"))
