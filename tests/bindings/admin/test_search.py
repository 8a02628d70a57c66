"""One search over tasks, conversations, agents and keys."""

from pathlib import Path

from dragoman.model.principal import AccessRole
from tests.bindings.admin.test_admin import make_keys, make_task, read, server
from tests.kit.places import sqlite_url


async def test_whatever_an_operator_remembers_finds_it(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    keys = await make_keys(
        store, annette=(AccessRole.CALLER, None), bob=(AccessRole.CALLER, None), ops=(AccessRole.OPERATOR, None)
    )
    async with server(store) as http:
        first = await make_task(http, "echo", "Order of tea", keys["annette"])
        second = await make_task(http, "other", "100 % cocoa", keys["bob"])
        _, page = await read(http, "/tasks", keys["ops"])
        context = next(task["context"] for task in page["tasks"] if task["id"] == first)

        async def find(words: str) -> tuple[set[str], set[str], set[str], set[str]]:
            status, found = await read(http, "/search", keys["ops"], params={"q": words})
            assert (status, found["more"]) == (200, False)
            return (
                {task["id"] for task in found["tasks"]},
                {each["context"] for each in found["conversations"]},
                {agent["id"] for agent in found["agents"]},
                {key["name"] for key in found["keys"]},
            )

        nothing: set[str] = set()
        assert await find(first) == ({first}, nothing, nothing, nothing)
        assert await find(second[-7:].upper()) == ({second}, nothing, nothing, nothing)
        assert await find(context) == ({first}, {context}, nothing, nothing)
        assert await find(" ORDER OF ") == ({first}, nothing, nothing, nothing)
        assert await find("0 % c") == ({second}, nothing, nothing, nothing)
        assert await find("ECHO") == (nothing, nothing, {"echo"}, nothing)
        assert await find("nett") == (nothing, nothing, nothing, {"annette"})
        assert await find("there is none") == (nothing, nothing, nothing, nothing)
        assert (await read(http, "/search", keys["ops"], params={"q": " "}))[0] == 400, "it would find everything"
