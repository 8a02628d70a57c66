"""Where a request goes that another application passes on."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bindings.mount import read_path


def scope(path: str, raw: bytes | None = None, root: str = "", outer: str = "") -> Mapping[str, Any]:
    found: dict[str, Any] = {"type": "http", "path": path, "root_path": root}
    return found | ({} if raw is None else {"raw_path": raw}) | ({"app_root_path": outer} if outer else {})


@pytest.mark.parametrize(
    ("given_scope", "path", "raw"),
    [
        (scope("/tasks/1", b"/tasks/1"), "/tasks/1", b"/tasks/1"),
        (scope("/in/tasks/1", b"/in/tasks/1", "/in"), "/tasks/1", b"/tasks/1"),  # Starlette, uvicorn
        (scope("/tasks/1", b"/tasks/1", "/in"), "/tasks/1", b"/tasks/1"),  # hypercorn behind a proxy that strips
        (scope("/tasks/1", b"/in/tasks/1", "/in"), "/tasks/1", b"/tasks/1"),  # applications that strip the path alone
        (scope("/in/tasks/1", b"/tasks/1", "/in"), "/tasks/1", b"/tasks/1"),
        (scope("/in", b"/in", "/in"), "/", b"/"),
        (scope("/in/", b"/in/", "/in/"), "/", b"/"),
        (scope("/inside/1", b"/inside/1", "/in"), "/inside/1", b"/inside/1"),  # no slash behind the mount's path
        (scope("/in/tasks/1", None, "/in"), "/tasks/1", b"/tasks/1"),
        (scope("/in/tasks/1", b"/in/tasks/1?x=%2F", "/in"), "/tasks/1", b"/tasks/1"),
        (scope("/in/agents/a/b", b"/in/agents/a%2Fb", "/in"), "/agents/a/b", b"/agents/a%2Fb"),
        (scope("/agents/a/b", b"/in/agents/a%2Fb", "/in"), "/agents/a/b", b"/agents/a%2Fb"),
        (scope("/a b/tasks/1", b"/a%20b/tasks/1", "/a b"), "/tasks/1", b"/tasks/1"),
        (scope("/in/tasks/1", b"/%69n/tasks/1", "/in"), "/tasks/1", b"/tasks/1"),
        (scope("/in/50%/1", None, "/in"), "/50%/1", b"/50%25/1"),
        # The other application has taken %2F for a slash, so that its mount ends there: this one follows it.
        (scope("/in/tasks/1", b"/in%2Ftasks/1", "/in"), "/tasks/1", b"/tasks/1"),
        # It has rewritten the path: what is on the wire counts nothing.
        (scope("/in/tasks/1", b"/old%20place", "/in"), "/tasks/1", b"/tasks/1"),
        # Starlette below a server that leaves its own root out.
        (scope("/in/tasks/1", b"/in/tasks/1", "/outer/in", "/outer"), "/tasks/1", b"/tasks/1"),
        (scope("/in/agents/a/b", b"/in/agents/a%2Fb", "/outer/in", "/outer/"), "/agents/a/b", b"/agents/a%2Fb"),
        (scope("/outer/in/tasks/1", b"/outer/in/tasks/1", "/outer/in", "/outer"), "/tasks/1", b"/tasks/1"),
        (scope("/in/../admin", b"/in/../admin", "/in"), "/../admin", b"/../admin"),
        (scope("/in/../admin", b"/in/%2e%2e/admin", "/in"), "/../admin", b"/%2e%2e/admin"),
    ],
)  # fmt: skip
def test_the_path_below_the_mount(given_scope: Mapping[str, Any], path: str, raw: bytes) -> None:
    found = read_path(given_scope)
    assert (found.path, found.raw_path) == (path, raw)


segments = st.lists(st.text(st.characters(blacklist_categories=("Cs",)), max_size=6), max_size=4)


@given(segments, segments, st.booleans(), st.booleans(), st.booleans())
def test_the_bytes_always_spell_the_path_that_the_other_application_sees(
    mount: list[str], below: list[str], full: bool, full_raw: bool, known: bool
) -> None:
    root = "".join(f"/{each}" for each in mount).rstrip("/")
    path = "/" + "/".join(below)
    raw = "".join(f"/{quote(each, safe='')}" for each in mount) + "/" + "/".join(quote(each, safe="") for each in below)
    raw_below = "/" + "/".join(quote(each, safe="") for each in below)
    found = read_path(scope(
        root + path if full else path, (raw if full_raw else raw_below).encode() if known else None, root
    ))  # fmt: skip
    assert found.mount == root
    assert unquote(found.raw_path.decode()) == found.path
    if full:
        assert found.path == path
    assert found.raw_path.startswith(b"/")
