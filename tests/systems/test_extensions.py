"""An extension is active if the caller asks for it and the card of that mount and agent lists it (A2A 1.0 §3.2.6)."""

import json
from typing import Any

import pytest

from dragoman.dialects.extensions import DEDUPE
from dragoman.dialects.protoagent.extensions import COST
from tests.systems.conftest import Json, Site
from tests.systems.hooks import BEEOS, EVOAI, NEW_REST, NEW_RPC, OLD_REST, OLD_RPC, PROTOAGENT, Hooked, V, rpc

NEW, OLD = "A2A-Extensions", "X-A2A-Extensions"
BOTH = {"a2a_extensions": f"{DEDUPE}, {COST}, urn:unknown"}


def active(headers: Any) -> dict[str, str]:
    return {name: headers[name] for name in (NEW, OLD) if name in headers}


@pytest.mark.parametrize(
    ("hooked", "echoed"),
    [
        (NEW_RPC, {NEW: DEDUPE}),
        (NEW_REST, {NEW: DEDUPE}),
        (OLD_RPC, {OLD: DEDUPE}),
        (OLD_REST, {OLD: DEDUPE}),
        (BEEOS, {NEW: DEDUPE}),
        (EVOAI, {}),
        (PROTOAGENT, {OLD: COST}),
    ],
    ids=lambda value: value.name if isinstance(value, Hooked) else "",
)
async def test_a_send_names_those_that_are_active(served: Site, hooked: Hooked, echoed: dict[str, str]) -> None:
    path, body = hooked.send("hello", None)
    for name in BOTH, {"x_" + key: value for key, value in BOTH.items()}:
        told = await served.post(path, body, **hooked.headers, **name)
        assert (told.status, active(told.headers)) == (200, echoed)


async def test_1_0_at_the_mount_of_protoagent(served: Site) -> None:
    told = await served.post("/a2a", rpc("ListTasks", {}), **V, **BOTH)
    assert active(told.headers) == {NEW: COST}


async def test_the_cards_of_these_mounts_list_what_is_active_there(served: Site) -> None:
    for mount, listed in (("/a2a", COST), ("/agents/desk", DEDUPE), ("/desk", DEDUPE)):
        card = (await served.ask("GET", f"{mount}/.well-known/agent-card.json")).body
        uris = [each["uri"] for each in card["capabilities"]["extensions"]]
        assert [uri for uri in (COST, DEDUPE) if uri in uris] == [listed]


async def test_a_stream_names_them_and_a_refusal_none(served: Site) -> None:
    params: Json = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    stream = await served.post("/agents/desk", rpc("SendStreamingMessage", params), **V, **BOTH)
    assert active(stream.headers) == {NEW: DEDUPE}
    refused = await served.post("/agents/desk", rpc("GetTask", {"id": "none"}), **V, **BOTH)
    assert json.loads(refused.raw)["error"]["code"] == -32001
    assert active(refused.headers) == {}
