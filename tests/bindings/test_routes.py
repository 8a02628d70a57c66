"""The endpoint that a path means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bindings.routes import Route, Routes
from dragoman.dialects import beeos, evoai, protoagent
from dragoman.dialects.resolve import MOUNTS
from dragoman.dialects.system import AGENT, ROOT, Mount
from dragoman.model.errors import NotFound

ROUTES = Routes(["echo", "other"], "echo")


def find(path: str) -> Route:
    return ROUTES.find(path.encode())


@pytest.mark.parametrize(
    ("path", "mount", "agent"),
    [
        ("/", "/", "echo"),
        ("/agents/other", "/agents/other", "other"),
        ("/agents/other/", "/agents/other", "other"),
        ("/agents/nobody", "/agents/nobody", "nobody"),
        ("/other", "/other", "other"),
        ("/nobody", "/nobody", "nobody"),
        ("/a2a", "/a2a", "echo"),
        ("/a2a/", "/a2a", "echo"),
        ("/api/v1/a2a/other", "/api/v1/a2a/other", "other"),
    ],
)
def test_a_mount_itself_is_json_rpc(path: str, mount: str, agent: str) -> None:
    route = find(path)
    assert (route.endpoint, route.mount, route.agent, [*route.methods]) == ("rpc", mount, agent, ["POST"])


@pytest.mark.parametrize("mount", ["", "/agents/other", "/other"])
@pytest.mark.parametrize(
    ("below", "methods"),
    [
        ("/message:send", {"POST": "SendMessage"}),
        ("/message%3Asend", {"POST": "SendMessage"}),
        ("/message:stream", {"POST": "SendStreamingMessage"}),
        ("/tasks", {"GET": "ListTasks", "HEAD": "ListTasks"}),
        ("/tasks/", {"GET": "ListTasks", "HEAD": "ListTasks"}),
        ("/tasks/t1", {"GET": "GetTask", "HEAD": "GetTask"}),
        ("/tasks/t1:cancel", {"POST": "CancelTask"}),
        ("/tasks/t1%3Acancel", {"POST": "CancelTask"}),
        ("/tasks/t1:subscribe", {"GET": "SubscribeToTask", "POST": "SubscribeToTask"}),
        ("/extendedAgentCard", {"GET": "GetExtendedAgentCard", "HEAD": "GetExtendedAgentCard"}),
        (
            "/tasks/t1/pushNotificationConfigs",
            {"GET": "ListTaskPushNotificationConfigs", "POST": "CreateTaskPushNotificationConfig"},
        ),
        (
            "/tasks/t1/pushNotificationConfigs/p1",
            {"GET": "GetTaskPushNotificationConfig", "DELETE": "DeleteTaskPushNotificationConfig"},
        ),
    ],
)
def test_every_rest_path_is_below_every_mount(mount: str, below: str, methods: dict[str, str]) -> None:
    route = find(mount + below)
    assert route.endpoint == "rest"
    assert dict(route.methods) == methods
    assert route.mount == (mount or "/")
    assert route.agent == ("other" if mount else "echo")
    assert not route.legacy


@pytest.mark.parametrize("mount", ["", "/agents/other"])
@pytest.mark.parametrize("below", ["/message:send", "/message:stream", "/tasks/t1", "/tasks/t1:cancel", "/card"])
def test_paths_below_v1_are_those_of_0_3(mount: str, below: str) -> None:
    assert find(f"{mount}/v1{below}").legacy


@pytest.mark.parametrize("path", ["/other/v1/message:send", "/v1"])
def test_0_3_has_no_paths_below_a_tenant(path: str) -> None:
    with pytest.raises(NotFound):
        find(path)


@pytest.mark.parametrize(
    "path", ["/v1/extendedAgentCard", "/v1/embeddings", "/v1/responses/r/other", "/v1/responses//cancel"]
)
def test_other_paths_below_v1_are_said_to_be_unsupported(path: str) -> None:
    route = find(path)
    assert route.endpoint == "unsupported"
    assert {"GET", "POST", "PUT", "PATCH", "DELETE"} <= route.methods.keys()


@pytest.mark.parametrize(
    ("path", "endpoint", "methods"),
    [
        ("/v1/responses", "responses", {"POST"}),
        ("/v1/responses/", "responses", {"POST"}),
        ("/v1/responses/resp%5Ft_1", "response", {"GET", "HEAD", "DELETE"}),
        ("/v1/responses/resp_t_1/cancel", "response-cancel", {"POST"}),
        ("/v1/responses/resp_t_1/input_items", "response-items", {"GET", "HEAD"}),
        ("/v1/conversations", "conversations", {"POST"}),
        ("/v1/conversations/conv_c", "conversation", {"GET", "HEAD", "DELETE"}),
        ("/v1/conversations/conv_c/items", "conversation-items", {"GET", "HEAD"}),
    ],
)
def test_responses_and_conversations_have_their_paths(path: str, endpoint: str, methods: set[str]) -> None:
    route = find(path)
    assert (route.endpoint, {*route.methods}) == (endpoint, methods)
    if route.ids:
        assert route.ids["id"] in ("resp_t_1", "conv_c")


def test_a_card_is_below_every_mount_under_both_names() -> None:
    for mount in ("", "/agents/other", "/other", "/agents/nobody", "/a2a", "/api/v1/a2a/other"):
        for name in ("agent-card.json", "agent.json"):
            assert find(f"{mount}/.well-known/{name}").endpoint == "card"


@pytest.mark.parametrize(
    ("path", "task_id"),
    [
        ("/tasks/a%2Fb", "a/b"),
        ("/tasks/a%00b", "a\0b"),
        ("/tasks/a%ffb", "a�b"),
        ("/tasks/%", "%"),
        ("/tasks/a:cancel:x", "a:cancel:x"),
        ("/tasks/a:cancel:cancel", "a:cancel"),
        ("/tasks/..", ".."),
    ],
)
def test_an_id_in_a_path_may_hold_anything(path: str, task_id: str) -> None:
    assert find(path).ids == {"id": task_id}


@pytest.mark.parametrize(
    "path",
    ["/tasks/a/b", "//", "//message:send", "/nope/x", "/other/x", "/.well-known", "/api", "/api/v1/a2a", "/a2a/x",
     "/a2a/message:send", "/api/v1/a2a/echo/message:send", "", "*", "x"],
)  # fmt: skip
def test_any_other_path_is_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        find(path)


@pytest.mark.parametrize("name", ["ready", "metrics"])
def test_what_proxies_keep_from_strangers_has_one_spelling(name: str) -> None:
    assert find(f"/{name}").endpoint == name
    for other in (f"/{name}/", f"/%{ord(name[0]):x}{name[1:]}"):
        with pytest.raises(NotFound):
            find(other)


@pytest.mark.parametrize("mount", MOUNTS)
def test_a_path_that_is_not_found_names_only_paths_that_are(mount: Mount) -> None:
    routes = Routes(["echo"], "echo", [mount])
    with pytest.raises(NotFound) as refusal:
        routes.find(b"/nope/x/y")
    assert ("GET /agents " in str(refusal.value)) == (mount is AGENT)
    assert routes.find(b"/.well-known/agent-card.json").endpoint == "card"


def test_a_reserved_word_is_never_a_tenant() -> None:
    with pytest.raises(NotFound):
        find("/metrics/message:send")


@pytest.mark.parametrize(
    ("path", "methods", "ids"),
    [
        ("/other/stream", ["GET"], {}),
        ("/a2a/tasks/t1", ["GET", "HEAD"], {"id": "t1"}),
        ("/a2a/tasks/t1/pushNotificationConfig", ["POST", "GET"], {"task_id": "t1"}),
    ],
)
def test_paths_that_only_one_system_has(path: str, methods: list[str], ids: dict[str, str]) -> None:
    route = find(path)
    assert (route.endpoint, route.own is not None, [*route.methods], dict(route.ids)) == ("rest", True, methods, ids)


@pytest.mark.parametrize("mount", ["", "/agents/other"])
@pytest.mark.parametrize("path", ["tasks/send", "tasks/get", "tasks/cancel", "tasks/stream", "stream"])
def test_python_a2a_posts_to_paths_that_mean_something_else_otherwise(mount: str, path: str) -> None:
    route = find(f"{mount}/{path}")
    assert (route.endpoint, route.mount, dict(route.methods)) == ("rpc", mount or "/", {"POST": path})
    assert set(route.others) == (set() if path == "stream" else {"GET", "HEAD"})
    for other in route.others.values():
        assert (other.endpoint, dict(other.ids), other.own) == ("rest", {"id": path.removeprefix("tasks/")}, None)
        assert set(other.methods.values()) == {"GetTask"}


def test_a_card_is_at_agent_json_where_no_system_has_the_mount() -> None:
    for mount in ("/", "/agents/other"):
        route = find(f"{mount.rstrip('/')}/agent.json")
        assert (route.endpoint, route.mount) == ("card", mount)


def test_an_agent_may_be_called_as_a_path_of_python_a2a() -> None:
    route = Routes(["agent.json"], "agent.json").find(b"/agent.json")
    assert (route.endpoint, route.mount, route.agent, route.own) == ("rpc", "/agent.json", "agent.json", None)


def test_the_routes_of_a_thousand_agents_are_made_as_they_are_called() -> None:
    """A change of one agent makes the routes anew, while every other request waits."""
    few, many = Routes(["echo"], "echo"), Routes([f"agent-{number}" for number in range(1000)], "agent-0")
    assert len(many.exact) == len(few.exact) > 20
    called = [b"/agents/agent-7", b"/agent-7/message:send", b"/workers/agent-7/lease", b"/api/v1/a2a/agent-7"]
    assert all(many.find(path) is many.find(path) is many.exact[path] for path in called)
    known = len(many.exact)
    for path in (
        *(b"/agents/nobody", b"/nobody", b"/agents/agent-7/", b"/agents/%61gent-7", b"/agents/agent-7/tasks/t1"),
        *(b"/agents/agent-7/message%3Asend", b"/admin/v1/agents/agent-7", b"/agent-7/tasks/t1:cancel", b"/v1/tasks/t1"),
    ):
        many.find(path)
    assert len(many.exact) == known  # what a stranger makes up is not kept


def test_a_server_that_poses_as_a_system_has_no_paths_of_another() -> None:
    routes = Routes(["echo"], "echo", [ROOT])
    assert {*routes.find(b"/tasks/send").methods} == {"GET", "HEAD"}
    with pytest.raises(NotFound):
        routes.find(b"/stream")


def test_a_server_that_is_one_system_has_only_its_mount() -> None:
    kept = {
        ROOT: ["/", "/message:send", "/v1/message:send"],
        beeos.TENANT: ["/echo", "/echo/stream", "/echo/.well-known/agent.json"],
        evoai.MOUNT: ["/api/v1/a2a/echo", "/api/v1/a2a/echo/.well-known/agent.json"],
        protoagent.MOUNT: ["/a2a", "/a2a/tasks/t1", "/a2a/.well-known/agent.json"],
    }
    for mount in kept:
        routes = Routes(["echo"], "echo", [mount])
        for other, paths in kept.items():
            for path in paths:
                if other is mount:
                    routes.find(path.encode())
                else:
                    with pytest.raises(NotFound):
                        routes.find(path.encode())
        assert routes.find(b"/.well-known/agent.json").endpoint == "card"
        assert routes.find(b"/health").endpoint == "health"


@given(st.binary(max_size=60))
def test_any_path_is_a_route_or_not_found(path: bytes) -> None:
    try:
        assert isinstance(ROUTES.find(b"/" + path), Route)
    except NotFound:
        pass


def test_a_file_is_found_by_its_place_whatever_the_mounts() -> None:
    for routes in (ROUTES, Routes(["echo"], "echo", [beeos.TENANT]), Routes(["echo"], "echo", [ROOT])):
        route = routes.find(b"/files/task-1/abc")
        assert (route.endpoint, dict(route.ids), [*route.methods]) == (
            "files",
            {"task_id": "task-1", "digest": "abc"},
            ["GET", "HEAD"],
        )
        for path in (b"/files", b"/files/task-1", b"/files/task-1/abc/more"):
            with pytest.raises(NotFound):
                routes.find(path)
