"""An upstream, or a model, that takes nothing at present: callers learn at once when to come back."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web

from dragoman.engine.api import Runner
from dragoman.server import serving
from tests.agents.model.completions import completions, refused, said
from tests.agents.model.test_agent import model
from tests.kit.waiting import no_hang
from tests.kit.web import web_site
from tests.systems.test_upstream import CONFIG, partner

Json = dict[str, Any]
_numbers = itertools.count(1)

DONE = {
    "id": "theirs",
    "contextId": "c",
    "status": {"state": "TASK_STATE_COMPLETED"},
    "artifacts": [{"artifactId": "a", "parts": [{"text": "done"}]}],
}


class Busy:
    """An upstream that refuses `times` sends in such words, then does them; `asked` counts. `after` may be empty."""

    def __init__(self, status: int, after: str, error: Json | None = None, times: int = 99) -> None:
        self.asked = 0
        self._status = status
        self._headers = {"Retry-After": after} if after else {}
        self._error = error
        self._times = times

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        call = {"jsonrpc": "2.0", "id": (await request.json())["id"]}
        if self.asked > self._times:
            return web.json_response({**call, "result": {"task": DONE}})
        if self._error is None:
            return web.Response(status=self._status, headers=self._headers)
        return web.json_response({**call, "error": self._error}, status=self._status, headers=self._headers)


class Caller:
    """Calls the server at `url`."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def post(self, path: str, body: Json, headers: dict[str, str] | None = None) -> tuple[int, str, Any]:
        """Status, `Retry-After` and body."""
        async with self._http.post(self._url + path, json=body, headers=headers or {}) as answer:
            return answer.status, answer.headers.get("retry-after", ""), await answer.json(content_type=None)

    async def send(self, body: Json, **headers: str) -> tuple[int, str, Any]:
        """The same of a send to the default agent over REST."""
        return await self.post("/message:send", body, {**V1, **headers})

    async def get(self, task_id: str) -> Json:
        """The task, as of 1.0."""
        async with self._http.get(f"{self._url}/tasks/{task_id}", headers=V1) as answer:
            found: Json = await answer.json(content_type=None)
            return found


@asynccontextmanager
async def caller(agent: Runner) -> AsyncIterator[Caller]:
    async with no_hang(), serving(CONFIG, [agent]) as url, aiohttp.ClientSession() as http:
        yield Caller(http, url)


@asynccontextmanager
async def front(busy: Busy, **more: Any) -> AsyncIterator[Caller]:
    """A caller of a server before the one that is busy. `more` is said of that one."""
    agent_at = partial(partner, dialect="1.0", **more)
    async with web_site(web.post("/{path:.*}", busy.answer)) as url, caller(agent_at(url)) as calls:
        yield calls


def message(message_id: str = "", **more: Any) -> Json:
    message_id = message_id or f"m-{next(_numbers)}"
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "hello"}]}, **more}


def tagged(**tag: str) -> Json:
    return {"message": {"messageId": "m", "kind": "message", "role": "user", "parts": [{**tag, "text": "hello"}]}}


def rpc(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


V1 = {"A2A-Version": "1.0"}
CHAT: Json = {"messages": [{"role": "user", "content": "hello"}]}

SENDS: dict[str, tuple[str, Json, dict[str, str]]] = {
    "1.0 REST": ("/agents/partner/message:send", message(), V1),
    "1.0 REST stream": ("/agents/partner/message:stream", message(), V1),
    "1.0": ("/agents/partner", rpc("SendMessage", message()), V1),
    "1.0 stream": ("/agents/partner", rpc("SendStreamingMessage", message()), V1),
    "0.3": ("/agents/partner", rpc("message/send", tagged(kind="text")), {}),
    "0.3 stream": ("/agents/partner", rpc("message/stream", tagged(kind="text")), {}),
    "beeos": ("/partner", rpc("SendMessage", tagged(kind="text")), {}),
    "kaos": ("/", rpc("SendMessage", tagged(type="text")), {}),
    "evoai": ("/api/v1/a2a/partner", rpc("message/send", tagged(type="text")), {}),
    "protoagent": ("/a2a", rpc("message/send", tagged()), {}),
    "chat completions": ("/v1/chat/completions", CHAT, {}),
    "chat completions stream": ("/v1/chat/completions", {**CHAT, "stream": True}, {}),
}

REFUSALS = {
    "503": Busy(503, "7"),
    "429": Busy(429, "7"),
    "429 with an error": Busy(429, "7", {"code": -32000, "message": "too many requests"}),
}


@pytest.mark.parametrize("how", SENDS)
async def test_every_caller_learns_at_once_when_to_come_back(how: str) -> None:
    path, body, headers = SENDS[how]
    busy = Busy(503, "7")
    async with front(busy) as calls:
        status, after, told = await calls.post(path, body, headers)
        assert (status, after, busy.asked) == (503, "7", 1), told
        assert "partner takes no tasks at present: send again in 7 s." in str(told)


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_however_the_upstream_refuses_its_time_is_passed_on(refusal: str) -> None:
    async with front(REFUSALS[refusal]) as calls:
        assert (await calls.send(message()))[:2] == (503, "7")
        assert REFUSALS[refusal].asked == 1


async def test_a_short_wait_is_waited_and_the_task_done() -> None:
    busy = Busy(503, "0", times=2)
    async with front(busy) as calls:
        status, _, told = await calls.send(message())
        assert (status, told["task"]["status"]["state"], busy.asked) == (200, "TASK_STATE_COMPLETED", 3)


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.parametrize("queues", [False, True])
async def test_a_message_that_a_proxy_may_have_passed_on_is_sent_once(status: int, queues: bool) -> None:
    busy = Busy(status, "", times=1)
    async with front(busy, queues=queues) as calls:
        code, after, told = await calls.send(message())
        assert (code, after, busy.asked) == (200, "", 1), told
        assert told["task"]["status"]["message"]["metadata"] == {"reason": "upstream_uncertain"}


@pytest.mark.parametrize("queues", [False, True])
async def test_it_is_sent_again_to_an_upstream_that_recognises_it(queues: bool) -> None:
    busy = Busy(503, "", times=1)
    async with front(busy, queues=queues, dedupes=True) as calls:
        _, _, told = await calls.send(message())
        assert (told["task"]["status"]["state"], busy.asked) == ("TASK_STATE_COMPLETED", 2)


async def test_an_agent_that_failed_is_not_busy_although_it_names_a_time() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "AGENT_FAILED", "domain": "a2a-protocol.org"}
    busy = Busy(500, "1", {"code": -32603, "message": "Agent processing failed", "data": [info]})
    async with front(busy) as calls:
        status, _, told = await calls.send(message())
        task = told["task"]
        assert (status, task["status"]["state"], busy.asked) == (200, "TASK_STATE_FAILED", 1)
        assert "reason" not in task["status"]["message"].get("metadata", {})


async def test_callers_that_did_not_wait_read_the_time_in_the_task() -> None:
    async with front(Busy(503, "7")) as calls:
        status, _, told = await calls.send(message(configuration={"returnImmediately": True}))
        assert status == 200
        task = told["task"]
        while task["status"]["state"] != "TASK_STATE_FAILED":
            task = await calls.get(task["id"])
        assert task["status"]["message"]["metadata"] == {"reason": "upstream_busy", "retryAfter": 7}


async def test_the_refusal_names_the_task_which_says_the_same() -> None:
    async with front(Busy(503, "7")) as calls:
        _, _, told = await calls.send(message())
        info = next(each for each in told["error"]["details"] if each["@type"].endswith("ErrorInfo"))
        task = await calls.get(info["metadata"]["taskId"])
        assert task["status"]["message"]["metadata"]["retryAfter"] == 7


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}], ids=["message id", "key"])
async def test_a_repeat_of_a_refused_call_is_another_task_and_a_repeat_of_that_is_not(headers: dict[str, str]) -> None:
    body = message("0b5c7d5e-3c53-4b4e-9d3b-6a6c7f0d2a11")
    busy = Busy(503, "7", times=2)
    async with front(busy) as calls:
        for _ in range(2):
            assert (await calls.send(body, **headers))[0] == 503
        first, second = [await calls.send(body, **headers) for _ in range(2)]
        assert first[2]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert first[2]["task"]["id"] == second[2]["task"]["id"]
        assert busy.asked == 3


async def test_repeats_at_once_of_a_refused_call_are_one_task() -> None:
    body = message("0b5c7d5e-3c53-4b4e-9d3b-6a6c7f0d2a12")
    async with front(Busy(503, "7", times=1)) as calls:
        assert (await calls.send(body))[0] == 503
        told = await asyncio.gather(*(calls.send(body) for _ in range(5)))
        assert len({each[2]["task"]["id"] for each in told}) == 1


async def test_an_agent_that_is_not_there_is_a_time_too() -> None:
    """The pause of a minute may end sooner: as soon as a look finds it there."""
    agent = partner("http://127.0.0.1:9/agents/none", dialect="1.0", failures=2, pause_s=60.0, clock=lambda: 0.0)
    async with caller(agent) as calls:
        told = [(await calls.send(message()))[:2] for _ in range(3)]
        assert told == [(503, "5"), (503, "10"), (503, "11")]


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "after"),
    [
        (refused(429, headers={"Retry-After": "7"}), "7"),
        (refused(503, headers={"Retry-After": "7"}), "7"),
        (refused(429, {"message": "pay", "code": "insufficient_quota"}), "60"),
        (refused(429, {"message": "pay", "code": "insufficient_quota"}, {"Retry-After": "3600"}), "3600"),
    ],
)
async def test_a_model_that_takes_nothing_is_a_time(script: Any, after: str) -> None:
    async with completions() as api, caller(model(api.url)) as calls:
        api.answers(script, script, script, said("Hello."))
        status, when, told = await calls.post("/v1/chat/completions", CHAT)
        assert (status, when, told["error"]["code"]) == (503, after, "unavailable")
        assert (await calls.post("/v1/chat/completions", {**CHAT, "stream": True}))[:2] == (503, after)
        assert (await calls.send(message()))[:2] == (503, after)
        status, _, told = await calls.post("/v1/chat/completions", CHAT)
        assert told["choices"][0]["message"]["content"] == "Hello."


async def test_an_answer_that_cannot_be_read_is_no_refusal() -> None:
    """It is not asked again, whatever it says: it may have done something, and a repeat must make no other task."""
    busy = Busy(200, "7")
    async with front(busy) as calls:
        body = message(str(uuid4()))
        answers = [await calls.send(body) for _ in range(2)]
    assert [(status, after) for status, after, _ in answers] == [(200, ""), (200, "")]
    status = answers[0][2]["task"]["status"]
    assert (status["state"], status["message"]["metadata"]) == ("TASK_STATE_FAILED", {"reason": "upstream_unreadable"})
    assert answers[1][2]["task"]["id"] == answers[0][2]["task"]["id"]
    assert busy.asked == 1


async def test_a_models_breaker_counts_answers_and_says_when_it_opens(caplog: pytest.LogCaptureFixture) -> None:
    async with completions() as api, caller(model(api.url, retries=2, failures=2)) as calls:
        api.answers(*[refused(503)] * 6)
        for _ in range(2):
            assert "does not answer" not in caplog.text
            assert (await calls.send(message()))[0] == 503
        assert len(api.asked) == 6
        assert f"model chat: {api.url} does not answer: the next call is made in 10 s" in caplog.text
        assert (await calls.send(message()))[0] == 503
        assert len(api.asked) == 6


async def test_a_model_that_answers_again_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.models")
    async with completions() as api, caller(model(api.url, retries=0, failures=1, pause_s=0.0)) as calls:
        api.answers(refused(503), said("Hello."))
        assert (await calls.send(message()))[0] == 503
        assert "answers again" not in caplog.text
        assert (await calls.send(message()))[0] == 200
        assert f"model chat: {api.url} answers again" in caplog.text
