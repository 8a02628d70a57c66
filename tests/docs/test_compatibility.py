"""The tables of docs/compatibility.md say what the code says."""

import re
from pathlib import Path

import pytest

from dragoman.bindings.routes import Routes
from dragoman.dialects import v03, v1
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

PATHS_OF_ONE_VERSION = ("/extendedAgentCard", "/v1/card")


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its header."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in each] for each in rows[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_of_errors_is_that_of_both_versions() -> None:
    shown = [
        (code(name)[0], int(number), code(reason)[0], int(new), int(old))
        for name, number, reason, new, old, _ in table("Errors")
    ]
    assert shown == [
        (type(error).__name__, row(error).code, row(error).reason, row(error).http_status, rest_error_status(error))
        for error in INSTANCES
    ]


def test_the_table_of_errors_has_the_statuses_of_grpc() -> None:
    shown = [code(each[5]) for each in table("Errors")]
    assert [(CODES[each[0]], CODES[each[-1]]) for each in shown] == [
        (v1_protobuf.GRPC.error_status(error), v03_protobuf.GRPC.error_status(error)) for error in INSTANCES
    ]


def test_the_last_ten_errors_have_their_own_status_over_json_rpc() -> None:
    statuses = [(v1.JSONRPC.error_status(error), v03.JSONRPC.error_status(error)) for error in INSTANCES]
    assert statuses[:-10] == [(200, 200)] * (len(INSTANCES) - 10)
    assert all(200 not in each for each in statuses[-10:])


def test_every_error_is_in_the_table() -> None:
    declared = {kind.__name__ for kind in A2AError.__subclasses__() if kind.__module__ == errors.__name__}
    assert declared == {type(error).__name__ for error in INSTANCES}


def test_every_method_of_both_versions_is_in_the_table_of_operations() -> None:
    rows = table("Operations")
    assert {name for each in rows for name in code(each[1])} == set(METHODS_1)
    assert {name for each in rows for name in code(each[2])} == set(METHODS_03)


@pytest.mark.parametrize("each", table("Operations"), ids=lambda each: str(each[0]))
def test_every_path_of_the_table_is_routed(each: list[str]) -> None:
    routes = Routes(["echo"], "echo")
    (name,) = code(each[1])
    verbs, paths = re.findall(r"GET|POST|DELETE", each[3]), re.findall(r"/[^`]+", each[3])
    assert len(verbs) >= len(paths) > 0
    for verb, path in zip(verbs, paths if len(paths) == len(verbs) else paths * len(verbs), strict=True):
        mounts = ["", "/agents/echo"]
        if path not in PATHS_OF_ONE_VERSION:
            mounts += ["/v1", "/agents/echo/v1", "/echo"]
        for mount in mounts:
            route = routes.find((mount + path.replace("{id}", "t1").replace("{config}", "c1")).encode())
            assert route.methods[verb] == name
