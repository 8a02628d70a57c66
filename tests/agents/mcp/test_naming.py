"""The names under which a model calls the tools of servers."""

import re

from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.mcp.tools import ServerTool, ToolNames

TAKEN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def test_with_one_server_a_tool_keeps_its_name() -> None:
    assert ToolNames(("files",)).name(ServerTool(0, "read_file")) == "read_file"


def test_with_several_each_name_begins_with_its_servers() -> None:
    names = ToolNames(("files", "web"))
    assert [names.name(ServerTool(server, "search")) for server in (0, 1)] == ["files__search", "web__search"]
    assert names.resolve("web__search") == ServerTool(1, "search")
    assert names.resolve("search") is None


def test_names_that_would_be_alike_differ() -> None:
    names = ToolNames(("files",))
    first, second = names.name(ServerTool(0, "a.b")), names.name(ServerTool(0, "a b"))
    assert first == "a_b"
    assert second.startswith("a_b_")
    assert (names.resolve(first), names.resolve(second)) == (ServerTool(0, "a.b"), ServerTool(0, "a b"))


@given(st.lists(st.tuples(st.integers(0, 2), st.text()), max_size=20))
def test_every_name_is_taken_by_apis_and_means_one_tool(tools: list[tuple[int, str]]) -> None:
    names = ToolNames(("a", "b" * 24, "c"))
    named = {ServerTool(server, tool): names.name(ServerTool(server, tool)) for server, tool in tools}
    assert all(TAKEN.fullmatch(name) for name in named.values())
    assert len(set(named.values())) == len(named)
    assert all(names.resolve(name) == tool for tool, name in named.items())
