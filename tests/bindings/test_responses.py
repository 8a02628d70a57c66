"""OpenAI's Responses: a whole server, and what its clients send and read."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context, Reject
from dragoman.dialects.sse import Parser
from dragoman.model.principal import Scope
from tests.kit.places import add_keys, beside, server, sqlite_url

poet = Agent("poet", description="Writes as it is told")


@poet.skill
async def write(ctx: Context) -> AsyncIterator[str]:
    """Writes each word, and ends as the first one says."""
    verb, *words = ctx.text.split()
    for word in words:
        yield f"{word} "
    ctx.usage(input=3, output=len(words))
    match verb:
        case "ask":
            yield f"You said: {await ctx.ask('Which one?')} "
            yield f"And: {await ctx.ask('And why?')}"
        case "reject":
            raise Reject("not in the mood")
        case "fail":
            raise RuntimeError("secret")
        case "wait":
            await asyncio.Event().wait()
        case _:
            return


@poet.skill("everything")
async def everything(ctx: Context) -> dict[str, Any]:
    """Tells all that it was given."""
    return {
        "parts": [[part.text, part.url, part.media_type, part.filename, len(part.raw or b"")] for part in ctx.parts],
        "history": [[message.role.value, message.text] for message in await ctx.history()],
        "metadata": dict(ctx.metadata),
    }


picture = Agent("picture")


@picture.skill
async def paint(ctx: Context) -> None:
    """Gives out an image, a file and an address."""
    await ctx.artifact(b"\x89PNG", name="a.png", media_type="image/png")
    await ctx.artifact(b"\0\1", name="b")


at_once = Agent("at-once", direct=True)


@at_once.skill
async def reply(ctx: Context) -> str:
    """Answers with a message where the door has one."""
    return f"you said {ctx.text}"


quiet = Agent("quiet", streams=False)


@quiet.skill
async def mumble(ctx: Context) -> str:
    """An agent whose card says that it does not stream."""
    return await ctx.ask("What?")


AGENTS = (poet, picture, at_once, quiet)


class Client:
    """A client of OpenAI's kind; `headers` are those of the last answer."""

    def __init__(self, http: aiohttp.ClientSession, key: str = "any") -> None:
        self.http = http
        self.key = key
        self.headers: Any = None

    async def call(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        headers = {
            "Authorization": f"Bearer {self.key}",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        async with self.http.request(method, f"/v1{path}", json=body, headers=headers) as answer:
            assert answer.status == status, await answer.text()
            self.headers = answer.headers
            return await answer.json()

    async def create(self, said: Any, status: int = 200, key: str = "", **more: Any) -> Any:
        headers = {"Idempotency_Key": key} if key else {}
        return await self.call("POST", "/responses", {"model": "poet", "input": said, **more}, status, **headers)

    async def get(self, path: str, status: int = 200) -> Any:
        return await self.call("GET", path, status=status)

    async def raw(self, path: str, body: Any = None, **headers: str) -> bytes:
        headers = {"Authorization": f"Bearer {self.key}", **headers}
        async with self.http.request(
            "GET" if body is None else "POST", f"/v1{path}", json=body, headers=headers
        ) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["Content-Type"] == "text/event-stream"
            self.headers = answer.headers
            return await answer.read()

    async def stream(self, said: Any, **more: Any) -> bytes:
        return await self.raw("/responses", {"model": "poet", "input": said, "stream": True, **more})


def events(raw: bytes) -> list[Any]:
    """The events of a stream, each named as it is typed."""
    found = [(event.event, json.loads(event.data)) for event in Parser().feed(raw)]
    assert all(name == event["type"] for name, event in found)
    return [event for _, event in found]


def text(response: Any) -> str:
    """The text of a response, as `output_text` of the official client."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(content["text"] for item in messages for content in item["content"])


@pytest.fixture(scope="module")
async def place() -> AsyncIterator[Client]:
    async with server(*AGENTS, max_streams=50) as http:
        yield Client(http)


# -- one turn ----------------------------------------------------------------------------------------------------------


async def test_a_response_is_a_task_that_is_read_again(place: Client) -> None:
    made = await place.create("say Hello you")
    assert (made["status"], text(made), made["usage"]["total_tokens"]) == ("completed", "Hello you ", 5)
    task_id = place.headers["x-dragoman-task-id"]
    assert made["id"] == f"resp_{task_id}_1"
    assert await place.get(f"/responses/{made['id']}") == made
    assert place.headers["x-dragoman-task-id"] == task_id


async def test_a_stream_adds_up_to_its_response_and_is_the_same_again(place: Client) -> None:
    raw = await place.stream("say Hello you")
    sent = events(raw)
    assert [event["sequence_number"] for event in sent] == [*range(len(sent))]
    deltas = [event["delta"] for event in sent if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Hello you "
    made = sent[-1]["response"]
    assert await place.get(f"/responses/{made['id']}") == made
    assert await place.raw(f"/responses/{made['id']}?stream=true") == raw
    for after in (0, 3, len(sent) - 2, len(sent) - 1):
        rest = await place.raw(f"/responses/{made['id']}?stream=true&starting_after={after}")
        assert raw.endswith(rest)
        assert events(rest) == sent[after + 1 :]


@pytest.mark.parametrize(
    ("said", "status", "code", "message"),
    [
        ("fail so far", "failed", "server_error", "The agent failed"),
        ("reject", "failed", "invalid_prompt", "not in the mood"),
    ],
)
async def test_a_failure_is_a_response(place: Client, said: str, status: str, code: str, message: str) -> None:
    made = await place.create(said)
    assert (made["status"], made["error"]["code"]) == (status, code)
    assert message in made["error"]["message"]
    assert "secret" not in made["error"]["message"]
    assert events(await place.stream(said))[-1]["type"] == "response.failed"


async def test_an_agent_that_answers_directly_makes_a_task_here(place: Client) -> None:
    made = await place.create("this", model="at-once")
    assert text(made) == "you said this"
    assert await place.get(f"/responses/{made['id']}") == made


async def test_files_go_in_and_images_come_out(place: Client) -> None:
    data = base64.b64encode(b"\x89PNG").decode()
    content = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "low"},
        {"type": "input_file", "file_data": f"data:application/pdf;base64,{data}", "filename": "a.pdf"},
        {"type": "input_file", "file_url": "https://example.org/b.pdf"},
    ]
    made = await place.create([{"role": "user", "content": content}], metadata={"skill": "everything"})
    assert json.loads(text(made))["parts"] == [
        ["look", None, None, None, 0],
        [None, None, "image/png", None, 4],
        [None, None, "application/pdf", "a.pdf", 4],
        [None, "https://example.org/b.pdf", None, None, 0],
    ]
    (item,) = (await place.get(f"/responses/{made['id']}/input_items"))["data"]
    assert [part["type"] for part in item["content"]] == ["input_text", "input_image", "input_file", "input_image"]
    painted = await place.create("a cat", model="picture")
    (image,) = painted["output"]
    assert (image["type"], image["status"], base64.b64decode(image["result"])) == (
        "image_generation_call",
        "completed",
        b"\x89PNG",
    )
    assert events(await place.raw(f"/responses/{painted['id']}?stream=true"))[-1]["response"] == painted


async def test_what_is_asked_reaches_the_agent(place: Client) -> None:
    more = {"instructions": "Be brief.", "temperature": 0.5, "user": "me", "metadata": {"skill": "everything"}}
    said = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    made = await place.create(said, **more)
    told = json.loads(text(made))
    assert told["history"] == [["ROLE_USER", "Be brief."], ["ROLE_USER", "one"], ["ROLE_AGENT", "two"]]
    sent = {"instructions": "Be brief.", "temperature": 0.5, "user": "me"}
    assert told["metadata"] == {"skill": "everything", "user": "me", "openai": sent}
    assert (made["metadata"], made["instructions"], made["user"]) == ({"skill": "everything"}, "Be brief.", "me")
    items = (await place.get(f"/responses/{made['id']}/input_items?order=asc"))["data"]
    assert [item["role"] for item in items] == ["system", "user", "assistant", "user"]


async def test_the_items_of_the_input_come_in_pages(place: Client) -> None:
    made = await place.create([{"role": "user", "content": str(number)} for number in range(5)])
    path = f"/responses/{made['id']}/input_items"
    newest = await place.get(path)
    assert ([item["content"][0]["text"] for item in newest["data"]], newest["has_more"]) == ([*"43210"], False)
    page = await place.get(f"{path}?limit=2&order=asc&after={newest['data'][-1]['id']}")
    assert ([item["content"][0]["text"] for item in page["data"]], page["has_more"]) == ([*"12"], True)
    assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
    assert "after" in (await place.get(f"{path}?after=other", 400))["error"]["message"]


# -- several turns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("agent", ["poet", None])
async def test_a_question_is_answered_by_the_response_that_asked(
    place: Client, streams: bool, agent: str | None
) -> None:
    async def create(said: str, **more: Any) -> Any:
        if not streams:
            return await place.create(said, **more)
        raw = await place.stream(said, **more)
        made = events(raw)[-1]["response"]
        assert await place.raw(f"/responses/{made['id']}?stream=true") == raw
        return made

    asked = await create("ask Well")
    assert (asked["status"], text(asked)) == ("completed", "Well \n\nWhich one?")
    assert asked["metadata"] == {"dragoman_task_state": "input-required"}
    second = await create("this", model=agent, previous_response_id=asked["id"], metadata={"colour": "blue"})
    assert text(second) == "You said: this \n\nAnd why?"
    assert second["metadata"] == {"colour": "blue", "dragoman_task_state": "input-required"}
    assert second["previous_response_id"] == asked["id"]
    third = await create("so", model=agent, previous_response_id=second["id"])
    assert (text(third), third["metadata"]) == ("And: so", {})
    assert [each["usage"]["total_tokens"] for each in (asked, third)] == [4, 0]
    assert [each["id"][-2:] for each in (asked, second, third)] == ["_1", "_2", "_3"]
    for each in (asked, second, third):
        assert await place.get(f"/responses/{each['id']}") == each
    (item,) = (await place.get(f"/responses/{second['id']}/input_items"))["data"]
    assert item["content"] == [{"type": "input_text", "text": "this"}]


async def test_after_the_end_the_next_message_is_of_the_same_context(place: Client) -> None:
    first = await place.create("say one")
    context_id = place.headers["x-dragoman-context-id"]
    second = await place.create(
        "what was that?", previous_response_id=first["id"], metadata={"skill": "everything"}, instructions="Be brief."
    )
    assert place.headers["x-dragoman-context-id"] == context_id
    assert json.loads(text(second))["history"] == [
        ["ROLE_USER", "say one"],
        ["ROLE_AGENT", "one "],
        ["ROLE_USER", "Be brief."],
    ]


async def test_a_question_is_answered_once(place: Client) -> None:
    asked = await place.create("ask")
    body = {"previous_response_id": asked["id"]}
    answered = await place.create("this", key=asked["id"], **body)
    assert await place.create("this", key=asked["id"], **body) == answered  # the same call again
    told = await place.create("that", 400, **body)
    assert (told["error"]["param"], "has been answered" in told["error"]["message"]) == ("previous_response_id", True)
    told = await place.create("that", 400, previous_response_id=answered["id"], model="picture")
    assert told["error"]["param"] == "model"
    again = await place.create("that", 400, previous_response_id=f"{asked['id'][:-2]}_7")
    assert again["error"]["param"] == "previous_response_id"


async def test_a_repeated_stream_is_the_same_stream(place: Client) -> None:
    body = {"model": "poet", "input": "ask one", "stream": True}
    first = await place.raw("/responses", body, **{"Idempotency-Key": "again"})
    assert await place.raw("/responses", body, **{"Idempotency-Key": "again"}) == first
    asked = events(first)[-1]["response"]["id"]
    answer = {"input": "this", "stream": True, "previous_response_id": asked}
    second = await place.raw("/responses", answer, **{"Idempotency-Key": "again 2"})
    assert await place.raw("/responses", answer, **{"Idempotency-Key": "again 2"}) == second
    assert events(second)[-1]["response"]["id"] == f"{asked[:-2]}_2"


@pytest.mark.parametrize("streams", [False, True])
async def test_of_two_answers_at_once_one_is_refused(place: Client, streams: bool) -> None:
    asked = await place.create("ask")

    async def answer(said: str) -> tuple[int, str]:
        body = {"input": said, "stream": streams, "previous_response_id": asked["id"]}
        async with place.http.post("/v1/responses", json=body) as answer:
            return answer.status, await answer.text()

    (_, won), (status, lost) = sorted(await asyncio.gather(*map(answer, "ab")))
    assert (status, json.loads(lost)["error"]["param"]) == (400, "previous_response_id")
    made = events(won.encode())[-1]["response"] if streams else json.loads(won)
    assert await place.get(f"/responses/{asked['id'][:-2]}_2") == made


async def test_a_response_in_progress_is_not_gone_on_with(place: Client) -> None:
    made = await place.create("wait", background=True)
    told = await place.create("more", 400, previous_response_id=made["id"])
    assert "in progress" in told["error"]["message"]
    await place.call("POST", f"/responses/{made['id']}/cancel")


async def test_an_agent_that_does_not_stream_is_read_all_the_same(place: Client) -> None:
    asked = await place.create("x", model="quiet")
    assert await place.get(f"/responses/{asked['id']}") == asked
    answered = await place.create("that", model="quiet", previous_response_id=asked["id"])
    assert text(answered) == "that"
    assert events(await place.raw(f"/responses/{answered['id']}?stream=true"))[-1]["response"] == answered


# -- background, cancel, delete ----------------------------------------------------------------------------------------


async def test_a_response_in_the_background_is_followed_and_canceled(place: Client) -> None:
    made = await place.create("wait for me", background=True)
    assert (made["background"], made["status"] in ("queued", "in_progress")) == (True, True)
    following = asyncio.create_task(place.raw(f"/responses/{made['id']}?stream=true"))
    while not (await place.get(f"/responses/{made['id']}"))["output"]:
        await asyncio.sleep(0.01)
    canceled = await place.call("POST", f"/responses/{made['id']}/cancel")
    assert (canceled["status"], text(canceled)) == ("cancelled", "for me ")
    assert canceled["output"][0]["status"] == "incomplete"
    assert await place.call("POST", f"/responses/{made['id']}/cancel") == canceled
    last = events(await following)[-1]
    assert (last["type"], last["response"]) == ("response.incomplete", canceled)


async def test_a_cut_stream_changes_nothing_about_the_task(place: Client) -> None:
    body = {"model": "poet", "input": "wait for me", "stream": True}
    async with place.http.post("/v1/responses", json=body) as answer:
        head = b""
        while b"delta" not in head:
            head += await answer.content.readany()
    response_id = events(head.rpartition(b"\n\n")[0] + b"\n\n")[0]["response"]["id"]
    assert (await place.get(f"/responses/{response_id}"))["status"] == "in_progress"
    canceled = await place.call("POST", f"/responses/{response_id}/cancel")
    assert (await place.raw(f"/responses/{response_id}?stream=true")).startswith(head)
    assert canceled["status"] == "cancelled"


async def test_a_response_is_deleted_once_its_task_has_ended(place: Client) -> None:
    asked = await place.create("ask")
    told = await place.call("DELETE", f"/responses/{asked['id']}", status=409)
    assert (told["error"]["code"], place.headers["x-should-retry"]) == ("response_not_ended", "false")
    second = await place.create("this", previous_response_id=asked["id"])
    last = await place.create("so", previous_response_id=second["id"])
    task_id = place.headers["x-dragoman-task-id"]
    deleted = await place.call("DELETE", f"/responses/{second['id']}")
    assert deleted == {"id": second["id"], "object": "response", "deleted": True}
    for each in (asked, second, last):
        await place.get(f"/responses/{each['id']}", 404)
    async with place.http.get(f"/tasks/{task_id}", headers={"A2A-Version": "1.0"}) as answer:
        assert answer.status == 404


async def test_a_response_that_is_not_stored_is_answered_and_not_read(place: Client) -> None:
    made = await place.create("ask Well", store=False)
    assert text(made) == "Well \n\nWhich one?"
    for method, path in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
        await place.call(method, f"/responses/{made['id']}{path}", status=404)
    answered = await place.create("this", previous_response_id=made["id"])
    assert (await place.get(f"/responses/{answered['id']}")) == answered


async def test_a_response_that_takes_long_is_answered_as_it_stands() -> None:
    async with server(*AGENTS, blocking_timeout_s=0.2) as http:
        client = Client(http)
        made = await client.create("wait for me")
        assert (made["status"], text(made)) in (("in_progress", ""), ("in_progress", "for me "))
        told = await client.create("wait for me", 504, store=False)
        assert told["error"]["code"] == "timeout"
        assert client.headers["x-should-retry"] == "false"


# -- conversations -----------------------------------------------------------------------------------------------------


async def test_a_conversation_is_a_context(place: Client) -> None:
    made = await place.call("POST", "/conversations", {})
    conversation = made["id"]
    assert await place.get(f"/conversations/{conversation}") == made
    asked = await place.create("ask Well", conversation=conversation)
    assert asked["conversation"] == {"id": conversation}
    assert place.headers["x-dragoman-context-id"] == conversation.removeprefix("conv_")
    answered = await place.create("this", conversation={"id": conversation})
    assert (answered["id"][:-2], text(answered)) == (asked["id"][:-2], "You said: this \n\nAnd why?")
    await place.call("DELETE", f"/conversations/{conversation}", status=409)
    last = await place.create("so", conversation=conversation)
    other = await place.create("a cat", model="picture", conversation=conversation)
    items = (await place.get(f"/conversations/{conversation}/items?order=asc"))["data"]
    assert [item.get("role", item["type"]) for item in items] == [
        *("user", "assistant") * 3,
        "user",
        "image_generation_call",
    ]
    assert items[1] == asked["output"][0]
    newest = await place.get(f"/conversations/{conversation}/items?limit=2")
    assert ([item["id"] for item in newest["data"]], newest["has_more"]) == ([items[7]["id"], items[6]["id"]], True)
    deleted = await place.call("DELETE", f"/conversations/{conversation}")
    assert deleted == {"id": conversation, "object": "conversation.deleted", "deleted": True}
    for each in (asked, answered, last, other):
        await place.get(f"/responses/{each['id']}", 404)
    assert (await place.get(f"/conversations/{conversation}/items"))["data"] == []


async def test_an_empty_id_names_nothing(place: Client) -> None:
    response = await place.create("hi", conversation="", previous_response_id="")
    assert (response["conversation"], response["previous_response_id"]) == (None, None)


async def test_the_refusal_of_a_second_answer_names_the_conversation(place: Client) -> None:
    async def answer(conversation: str, said: str) -> Any:
        body = {"model": "poet", "input": said, "conversation": conversation}
        async with place.http.post("/v1/responses", json=body) as answer:
            return (await answer.json())["error"]

    refused: list[Any] = []
    for _ in range(20):  # an answer that comes a little later is for the next question
        conversation = (await place.call("POST", "/conversations", {}))["id"]
        await place.create("ask", conversation=conversation)
        refused += [each for each in await asyncio.gather(*(answer(conversation, said) for said in "abcd")) if each]
        if refused:
            break
    assert {(each["param"], each["message"]) for each in refused} == {
        (
            "conversation",
            "conversation: its question has been answered meanwhile: send it again if it is meant for what follows",
        )
    }


async def test_other_ids_are_no_conversations(place: Client) -> None:
    for path in ("/conversations/conv_other", "/conversations/other", "/conversations/conv_other/items"):
        await place.get(path, 404)
    for body in ({"items": [{"role": "user", "content": "x"}]}, {"metadata": {"a": "b"}}):
        told = await place.call("POST", "/conversations", body, 400)
        assert told["error"]["param"] == next(iter(body))


# -- who may do what ---------------------------------------------------------------------------------------------------


async def test_a_response_is_its_owners(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    keys = await add_keys(url, ann={}, ben={}, reader={"scopes": frozenset({Scope.READ})})
    async with server(*AGENTS, store=url) as http:
        ann, ben, reader = (Client(http, keys[name]) for name in ("ann", "ben", "reader"))
        asked = await ann.create("ask")
        conversation = (await ann.call("POST", "/conversations"))["id"]
        await ann.create("say x", conversation=conversation)
        absent = await ben.get("/responses/resp_01a225f6-d0bb-7688-b4f1-3de7f3bf2325_1", 404)
        told = await ben.get(f"/responses/{asked['id']}", 404)
        assert _but(told, asked["id"]) == _but(absent, "resp_01a225f6-d0bb-7688-b4f1-3de7f3bf2325_1")
        for method, path in (("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items"), ("GET", "?stream=true")):
            await ben.call(method, f"/responses/{asked['id']}{path}", status=404)
        told = await ben.create("mine", 400, previous_response_id=asked["id"])
        assert told["error"]["param"] == "previous_response_id"
        assert (await ben.get(f"/conversations/{conversation}/items"))["data"] == []
        assert text(await ben.create("say y", conversation=conversation)) == "y "
        assert len((await ann.get(f"/conversations/{conversation}/items"))["data"]) == 2
        await ben.call("DELETE", f"/conversations/{conversation}")
        assert len((await ann.get(f"/conversations/{conversation}/items"))["data"]) == 2
        await reader.create("say x", 403)
        for path in ("/responses/x", "/conversations/x"):
            await Client(http, "wrong").get(path, 401)


def _but(told: Any, response_id: str) -> str:
    return json.dumps(told).replace(response_id, "ID")


async def test_limits_hold() -> None:
    async with server(*AGENTS, max_requests_per_s=1, max_body_bytes=300) as http:
        client = Client(http)
        await client.create("x" * 400, 413)
        for _ in range(4):
            async with http.post("/v1/responses", json={"input": "say x"}) as answer:
                last = answer.status, await answer.json(), answer.headers
        status, told, headers = last
        assert (status, told["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(headers["Retry-After"]) >= 1


async def test_reading_a_response_is_no_open_stream() -> None:
    async with server(*AGENTS, max_streams=1) as http:
        client = Client(http)
        made = await client.create("wait for me", background=True)
        async with http.get(f"/v1/responses/{made['id']}?stream=true") as answer:
            assert answer.status == 200
            assert (await client.get(f"/responses/{made['id']}"))["status"] in ("queued", "in_progress")
            told = await client.get(f"/responses/{made['id']}?stream=true", 429)
            assert told["error"]["code"] == "rate_limit_exceeded"
            assert (await client.call("POST", f"/responses/{made['id']}/cancel"))["status"] == "cancelled"


@pytest.mark.parametrize(("method", "path"), [("POST", "/embeddings"), ("GET", "/files"), ("PUT", "/responses/x/y")])
async def test_what_is_not_spoken_is_said_so(place: Client, method: str, path: str) -> None:
    told = (await place.call(method, path, status=404))["error"]
    assert (told["type"], told["code"], told["param"]) == ("invalid_request_error", "unsupported_endpoint", None)
    assert "POST /v1/responses" in told["message"]


async def test_what_is_spoken_is_listed_as_openapi_has_it(place: Client) -> None:
    message = (await place.call("GET", "/files", status=404))["error"]["message"]
    async with place.http.get("/openapi.json") as answer:
        paths = (await answer.json())["paths"]
    spoken = {path for path in paths if re.match(r"/v1/(chat|models|responses|conversations)\b", path)}
    assert set(re.findall(r"/v1/[\w/{}]+", message.partition("There are: ")[2])) == spoken


async def test_refusals_have_their_shape(place: Client) -> None:
    for body, status, param in (
        ({"model": "nobody", "input": "x"}, 404, "model"),
        ({"input": "x", "tools": [{"type": "function", "name": "f"}]}, 400, "tools"),
        ({"input": "x", "background": True, "store": False}, 400, "store"),
    ):
        told = (await place.call("POST", "/responses", body, status))["error"]
        assert set(told) == {"message", "type", "param", "code"}
        assert told["param"] == param
    for path in ("/responses/resp_x_1", "/responses/x", "/responses/x/input_items"):
        assert (await place.get(path, 404))["error"]["code"] == "not_found"
    await place.call("PUT", "/responses/x", status=405)


async def test_a_response_outlives_the_events_of_its_task_if_the_task_tells_it(tmp_path: Path) -> None:
    url, day_ms = sqlite_url(tmp_path), 86_400_000
    async with server(*AGENTS, store=url) as http:
        client = Client(http)
        single = await client.create("say Hello you", instructions="Be brief.")
        asked = await client.create("ask Well")
        answered = await client.create("this", previous_response_id=asked["id"])
        last = await client.create("so", previous_response_id=answered["id"])
    async with beside(url, "sweeper") as store:
        now_ms = store.clock.now_ms()
        assert await store.sweep(now_ms + 8 * day_ms, 30 * day_ms, 7 * day_ms, -1)
    async with server(*AGENTS, store=url) as http:
        client = Client(http)
        assert await client.get(f"/responses/{single['id']}") == single
        items = (await client.get(f"/responses/{single['id']}/input_items?order=asc"))["data"]
        assert [item["content"][0]["text"] for item in items] == ["Be brief.", "say Hello you"]
        for path in (
            f"/responses/{single['id']}?stream=true",
            *(f"/responses/{each['id']}" for each in (asked, answered)),
        ):
            assert "log_retention" in (await client.get(path, 404))["error"]["message"]
        more = await client.create("what now?", previous_response_id=last["id"], metadata={"skill": "everything"})
        said = [text for _, text in json.loads(text(more))["history"]]
        assert said[-5:] == ["Which one?", "this", "And why?", "so", "Well \nYou said: this \nAnd: so"]
