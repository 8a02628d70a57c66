"""Webhooks in every dialect, against a real receiver: what is registered, what arrives, in which order."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.net.peer import Asked
from tests.push.receiver import Receiver, place_of, receiving
from tests.systems.conftest import DEADLINE_S, Json, Site, Told, site
from tests.systems.hooks import (
    ALL,
    BEEOS,
    EVOAI,
    NEW_REST,
    NEW_RPC,
    OLD_REST,
    OLD_RPC,
    PROTO_REST,
    PROTOAGENT,
    WHOLE,
    Hooked,
    V,
    numbers,
    task_id_of,
)

SECRET = "a-secret-of-twenty-four-"
TOKEN = "shared-secret"
METADATA = "http://169.254.169.254/latest/meta-data/"

each_dialect = pytest.mark.parametrize("hooked", ALL, ids=lambda hooked: hooked.name)

# -- the receiver ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Site]:
    """Webhooks may be on loopback, by network; the cloud's metadata may not be reached."""
    async with site(push_allowed_hosts=(), push_allowed_cidrs=("127.0.0.0/8",)) as running:
        yield running


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as waiting:
        yield waiting


def hook(receiver: Receiver, **more: Any) -> Json:
    return {"url": f"{receiver.url}/hook", **more}


async def arrived(receiver: Receiver, last: Callable[[Asked], bool]) -> list[Asked]:
    """All calls up to the one that is looked for."""
    count = 0
    async with asyncio.timeout(DEADLINE_S):
        while not any(last(asked) for asked in receiver.asked[count:]):
            count = len(receiver.asked)
            await receiver.came(count + 1)
    return list(receiver.asked)


async def story(receiver: Receiver, hooked: Hooked, last: str = "") -> list[str]:
    """The calls up to the end."""
    calls = await arrived(receiver, lambda asked: hooked.told(asked.json) == (last or hooked.story[-1]))
    return [hooked.told(asked.json) for asked in calls]


def standard_signature(secret: str, asked: Asked) -> str:
    signed = f"{asked.headers['webhook-id']}.{asked.headers['webhook-timestamp']}.".encode() + asked.body
    return "v1," + base64.b64encode(hmac.digest(secret.encode(), signed, hashlib.sha256)).decode()


async def nothing_follows(served: Site, receiver: Receiver, count: int) -> None:
    """The call for another task, later, is the next that arrives."""
    await NEW_RPC.task(served, "afterwards", {"url": f"{receiver.url}/afterwards", "events": ["completed"]})
    await arrived(receiver, lambda asked: asked.path == "/afterwards")
    assert receiver.asked.pop().path == "/afterwards"
    assert len(receiver.asked) == count


# -- what arrives ------------------------------------------------------------------------------------------------------


@each_dialect
async def test_a_webhook_that_comes_with_the_message_is_told_the_whole_story(
    served: Site, receiver: Receiver, hooked: Hooked
) -> None:
    task_id = await hooked.task(served, "hello", hook(receiver, token=TOKEN, secret=SECRET))
    assert tuple(await story(receiver, hooked)) == hooked.story
    await nothing_follows(served, receiver, len(hooked.story))
    places = [place_of(asked.headers["x-dragoman-seq"]) for asked in receiver.asked]
    assert places == sorted(set(places)), "each has a place of its own, in the order in which it came"
    assert len({asked.headers["webhook-id"] for asked in receiver.asked}) == len(hooked.story)
    assert "hello" in json.dumps(receiver.asked[-1].json if "artifact" not in hooked.story else receiver.asked[-2].json)
    for asked in receiver.asked:
        assert (asked.method, asked.path) == ("POST", "/hook")
        assert task_id in asked.body.decode()
        assert asked.headers["content-type"] == hooked.content_type
        assert asked.headers["authorization"] == f"Bearer {TOKEN}"
        assert asked.headers["x-a2a-notification-token"] == TOKEN
        if hooked is BEEOS:
            signed = f"{asked.headers['webhook-timestamp']}.".encode() + asked.body
            digest = hmac.digest(SECRET.encode(), signed, hashlib.sha256).hex()
            assert asked.headers["x-beeos-signature"] == f"t={asked.headers['webhook-timestamp']},v1={digest}"
            assert "webhook-signature" not in asked.headers
        else:
            assert asked.headers["webhook-signature"] == standard_signature(SECRET, asked)


@each_dialect
async def test_one_that_is_registered_while_the_agent_works_is_told_how_it_stands_and_the_rest(
    served: Site, receiver: Receiver, hooked: Hooked
) -> None:
    gate = f"hook-{next(numbers)}"
    task_id = await hooked.task(served, f"wait {gate}")
    await served.begun(gate, task_id)
    told = await hooked.registered(served, task_id, hook(receiver))
    assert told.status == 200, told
    if hooked.waiting:
        await story(receiver, hooked, hooked.waiting)
    served.open(gate)
    calls = await story(receiver, hooked)
    rest = hooked.story[-2:] if "artifact" in hooked.story else hooked.story[-1:]
    assert calls == [*([hooked.waiting] if hooked.waiting else []), *rest]
    assert not any("authorization" in asked.headers or "webhook-signature" in asked.headers for asked in receiver.asked)
    assert all(asked.headers["webhook-id"] for asked in receiver.asked)


@each_dialect
async def test_one_that_is_registered_at_the_end_is_told_at_once(
    served: Site, receiver: Receiver, hooked: Hooked
) -> None:
    task_id = await hooked.task(served, "hello")
    await hooked.registered(served, task_id, hook(receiver))
    assert await story(receiver, hooked, hooked.ended) == [hooked.ended]
    assert "hello" in receiver.asked[0].body.decode() or hooked is BEEOS


@each_dialect
async def test_a_task_that_waits_and_goes_on_is_told_to_its_end(
    served: Site, receiver: Receiver, hooked: Hooked
) -> None:
    task_id = await hooked.task(served, "ask", hook(receiver))
    if len(hooked.story) > 1:
        await arrived(receiver, lambda asked: "input" in hooked.told(asked.json))
    path, body = hooked.send("Lyon", None)
    body.get("params", body)["message"]["taskId"] = task_id
    assert (await served.post(path, body, **hooked.headers)).status == 200
    await story(receiver, hooked)
    assert "Lyon" in " ".join(asked.body.decode() for asked in receiver.asked[-2:])


@each_dialect
async def test_events_say_what_alone_is_told(served: Site, receiver: Receiver, hooked: Hooked) -> None:
    await hooked.task(served, "hello", hook(receiver, events=["completed"]))
    assert await story(receiver, hooked) == [hooked.story[-1]]


@each_dialect
async def test_a_second_one_takes_the_place_of_the_first(served: Site, receiver: Receiver, hooked: Hooked) -> None:
    """Without an id there is one for each task, as on the official servers."""
    gate = f"hook-{next(numbers)}"
    async with receiving() as first:
        task_id = await hooked.task(served, f"wait {gate}", hook(first))
        await served.begun(gate, task_id)
        await hooked.registered(served, task_id, hook(receiver))
        served.open(gate)
        await story(receiver, hooked)
        assert not any("completed" in hooked.told(asked.json) for asked in first.asked)


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@each_dialect
async def test_the_trace_of_the_task_goes_with_each_call(served: Site, receiver: Receiver, hooked: Hooked) -> None:
    """That which its caller sent with the message, also with what is registered later."""
    path, body = hooked.send("hello", hook(receiver))
    task_id = task_id_of(await served.post(path, body, **hooked.headers, traceparent=TRACE))
    await story(receiver, hooked)
    async with receiving() as later:
        await hooked.registered(served, task_id, hook(later))
        await story(later, hooked, hooked.ended)
        assert {asked.headers.get("traceparent") for asked in (*receiver.asked, *later.asked)} == {TRACE}


# -- tokens ------------------------------------------------------------------------------------------------------------

TOP = {"token": TOKEN}
STRUCTURED = {"authentication": {"schemes": ["Bearer"], "credentials": "structured"}}


@pytest.mark.parametrize("hooked", [PROTOAGENT, PROTO_REST, BEEOS], ids=lambda hooked: hooked.name)
@pytest.mark.parametrize(
    ("shape", "bearer"), [(TOP, TOKEN), (STRUCTURED, "structured"), ({**STRUCTURED, **TOP}, TOKEN)]
)
async def test_both_token_shapes_become_a_bearer_and_the_top_level_wins(
    served: Site, receiver: Receiver, hooked: Hooked, shape: Json, bearer: str
) -> None:
    await hooked.task(served, "hello", hook(receiver, **shape))
    await story(receiver, hooked)
    async with receiving() as later:
        task_id = await hooked.task(served, "hello")
        await hooked.registered(served, task_id, hook(later, **shape))
        await story(later, hooked, hooked.ended)
        for asked in (*receiver.asked, *later.asked):
            assert asked.headers["authorization"] == f"Bearer {bearer}"
            assert asked.headers.get("x-a2a-notification-token") == (TOKEN if "token" in shape else None)


@pytest.mark.parametrize("hooked", [NEW_RPC, NEW_REST, OLD_RPC, OLD_REST, EVOAI], ids=lambda hooked: hooked.name)
async def test_elsewhere_authentication_is_the_authorization_and_the_token_beside_it(
    served: Site, receiver: Receiver, hooked: Hooked
) -> None:
    scheme = {"scheme": "Basic"} if hooked.headers else {"schemes": ["Basic", "Bearer"]}
    config = hook(receiver, token=TOKEN, authentication={**scheme, "credentials": "YTpi"})
    await hooked.task(served, "hello", config)
    await story(receiver, hooked)
    for asked in receiver.asked:
        assert asked.headers["authorization"] == "Basic YTpi"
        assert asked.headers["x-a2a-notification-token"] == TOKEN


@pytest.mark.parametrize(
    ("config", "headers"),
    [
        ({"authentication": {"type": "apikey", "key": "k", "headerName": "X-Our-Key"}}, {"x-our-key": "k"}),
        ({"webhookAuthenticationInfo": {"type": "apiKey", "apiKey": "k"}}, {"x-api-key": "k"}),
        ({"webhookAuthenticationInfo": {"type": "bearer", "token": "b"}}, {"authorization": "Bearer b"}),
        ({"webhookAuthenticationInfo": {"type": "none"}}, {}),
        ({"headers": {"Authorization": "Bearer h"}}, {"authorization": "Bearer h"}),
    ],
)
async def test_evo_ai_has_more_shapes(served: Site, receiver: Receiver, config: Json, headers: dict[str, str]) -> None:
    await EVOAI.task(served, "hello", {"webhookUrl": f"{receiver.url}/hook", **config})
    assert await story(receiver, EVOAI) == list(WHOLE)
    for asked in receiver.asked:
        assert {name: asked.headers[name] for name in headers} == headers
        assert headers or "authorization" not in asked.headers


# -- answers -----------------------------------------------------------------------------------------------------------


@each_dialect
async def test_it_is_read_listed_and_forgotten_and_no_answer_has_a_secret(
    served: Site, receiver: Receiver, hooked: Hooked
) -> None:
    gate = f"hook-{next(numbers)}"
    secrets = {
        "token": "shared-token",
        "secret": "hush-secret-hush-secret",
        "authentication": {"scheme": "Bearer", "schemes": ["Bearer"], "credentials": "hush-credentials"},
    }
    config = hook(receiver, id="c-1", **secrets)
    made = await hooked.made(served, f"wait {gate}", config)
    task_id = task_id_of(made)
    await served.begun(gate, task_id)
    again = await hooked.registered(served, task_id, config)
    answers = [made, again]
    url = config["url"]

    async def ask(asking: tuple[str, str, Json | None]) -> Told:
        verb, path, body = asking
        told = await served.ask(verb, path, body, **hooked.headers)
        answers.append(told)
        return told

    got = await ask(hooked.get(task_id, "c-1"))
    assert (got.status, url in got.raw.decode()) == (200, True), got
    withheld = hooked.name.startswith(("BeeOS", "Evo AI", "protoAgent"))
    assert ("shared-token" in got.raw.decode()) is not withheld
    if hooked.list is not None and hooked.delete is not None:
        assert (await ask(hooked.list(task_id))).raw.decode().count(url) >= 1
        assert (await ask(hooked.delete(task_id, "c-1"))).status == 200
        assert url not in (await ask(hooked.list(task_id))).raw.decode()
        gone = await ask(hooked.get(task_id, "c-1"))
        if hooked.name.startswith("protoAgent"):
            assert gone.result is None
        else:
            assert "error" in gone.body or gone.status == 404, gone
        other = {"url": f"{receiver.url}/other", "id": "c-2"}
        await hooked.registered(served, task_id, other)
        served.open(gate)
        await arrived(receiver, lambda asked: asked.path == "/other" and "completed" in asked.body.decode().lower())
        assert not any(asked.path == "/hook" and "completed" in asked.body.decode().lower() for asked in receiver.asked)
    served.open(gate)
    assert not any(b"hush" in told.raw or "hush" in str(told.headers) for told in answers)


@each_dialect
@pytest.mark.parametrize(
    "url", [METADATA, "http://10.0.0.1/hook", "http://[::ffff:169.254.169.254]/hook", "ftp://example.org/hook"]
)
async def test_an_unsafe_one_is_an_error_that_names_it_and_makes_no_task(
    served: Site, hooked: Hooked, url: str
) -> None:
    listing = ("/agents/desk/tasks?pageSize=1", V)
    before = (await served.ask("GET", listing[0], **listing[1])).body["totalSize"]
    told = await hooked.made(served, "hello", {"url": url})
    assert (await served.ask("GET", listing[0], **listing[1])).body["totalSize"] == before
    task_id = await hooked.task(served, "hello")
    later = await hooked.registered(served, task_id, {"url": url})
    for refused in (told, later):
        if refused.status == 200:
            assert refused.error["code"] == -32602, refused
        else:
            assert refused.status == (422 if hooked is OLD_REST else 400), refused
        assert "url" in refused.raw.decode()
        assert host_of(url) in refused.raw.decode().replace("\\/", "/"), refused
    assert b"completed" not in told.raw
    named = "taskPushNotificationConfig" if hooked in (NEW_RPC, NEW_REST) else "pushNotificationConfig"
    place = "params" if hooked is EVOAI else "configuration"
    assert f"{place}.{named}.url" in told.raw.decode(), told.raw


def host_of(url: str) -> str:
    return url.split("/")[2]


async def test_a_redirect_into_the_network_is_not_followed(served: Site, receiver: Receiver) -> None:
    receiver.answers = lambda number: (302, {"Location": METADATA})
    await NEW_RPC.task(served, "hello", hook(receiver, events=["completed"]))
    await arrived(receiver, lambda asked: True)
    async with receiving() as other:
        receiver.answers = lambda number: (307, {"Location": other.url})
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(2)
        assert not other.asked


# -- restarts ----------------------------------------------------------------------------------------------------------


@each_dialect
async def test_what_was_owed_arrives_after_a_restart(tmp_path: Path, receiver: Receiver, hooked: Hooked) -> None:
    """The receiver is away while the server is told; another server brings it all, with tokens and signatures."""
    settings: Json = {
        "push_allowed_hosts": (),
        "push_allowed_cidrs": ("127.0.0.0/8",),
        "store": f"sqlite:///{tmp_path}/d.db",
    }
    receiver.answers = lambda number: 503
    async with site(**settings) as served:
        task_id = await hooked.task(served, "hello", hook(receiver, token=TOKEN, secret=SECRET))
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(1)
    failed = list(receiver.asked)
    receiver.asked.clear()
    receiver.answers = lambda number: 204
    async with site(**settings):
        assert (await story(receiver, hooked))[-1] == hooked.story[-1]
    first = receiver.asked[0]
    assert first.headers["webhook-id"] == failed[0].headers["webhook-id"]
    assert first.body == failed[0].body
    for asked in receiver.asked:
        assert task_id in asked.body.decode()
        assert asked.headers["authorization"] == f"Bearer {TOKEN}"
        assert ("x-beeos-signature" if hooked is BEEOS else "webhook-signature") in asked.headers
