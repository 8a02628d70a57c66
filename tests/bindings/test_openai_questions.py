"""Chat completions that continue: an interface repeats the conversation, and its answers find the task that asked."""

import asyncio
import json
import random
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.cli.entries import make_agent
from dragoman.config import load
from dragoman.dialects.openai.chores import CHORES
from dragoman.dialects.sse import Parser
from dragoman.server import serving as serving_at
from tests.kit.places import V1, add_keys, quick, server, servers, sqlite_url
from tests.kit.processes import serving_process
from tests.kit.waiting import until
from tests.soak import times

MARK = re.compile(
    r"\n\n\[//\]: # \(dragoman-question [0-9a-f-]{36}\.[A-Za-z0-9_-]{16}\)(\n\n\[//\]: # \(dragoman-no-question\))?$"
)
"""The mark of a question, perhaps of another server."""

Turn = dict[str, Any]


def flights(**declared: Any) -> Agent:
    """An agent that asks two questions, and tells what it was told."""
    agent = Agent("flights", restartable=True, **declared)

    @agent.skill
    async def book(ctx: Context) -> str:
        """Books a flight."""
        start = await ctx.ask("From where?")
        day = await ctx.ask("When?")
        return f"{ctx.text}: from {start} on {day}"

    return agent


class Chat:
    """A chat interface of one person: it keeps the conversation and repeats all of it."""

    def __init__(self, http: aiohttp.ClientSession, **extra: Any) -> None:
        self.http = http
        self.turns: list[Turn] = []
        self.headers: dict[str, str] = extra.pop("headers", {})
        self.extra = extra
        self.shows: Callable[[str], str] = lambda content: content
        self.task_id = ""

    async def say(self, text: str) -> str:
        """Say something. Returns the answer as it is shown, without marks."""
        self.turns.append({"role": "user", "content": text})
        return await self.answer()

    async def answer(self) -> str:
        """Ask for the answer to the last turn."""
        content = await self.request(self.turns)
        self.turns.append({"role": "assistant", "content": self.shows(content)})
        return MARK.sub("", content)

    async def regenerate(self) -> str:
        """Ask for the last answer once more."""
        self.turns.pop()
        return await self.answer()

    async def request(self, turns: list[Turn]) -> str:
        """Send turns. Returns the content of the answer."""
        body = {"model": "flights", "messages": turns, **self.extra}
        async with self.http.post("/v1/chat/completions", json=body, headers=self.headers) as answered:
            assert answered.status == 200, await answered.text()
            self.task_id = answered.headers.get("x-dragoman-task-id", "")
            if not body.get("stream"):
                return str((await answered.json())["choices"][0]["message"]["content"])
            events = [event.data for event in Parser().feed(await answered.read())]
        assert events.pop() == "[DONE]"
        chunks = [json.loads(data) for data in events]
        return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def without_marks(content: str) -> str:
    """What an interface keeps that strips what it does not show."""
    return MARK.sub("", content)


async def tasks_of(http: aiohttp.ClientSession, state: str = "", **headers: str) -> list[Any]:
    """The caller's tasks, with their whole history."""
    query = {"pageSize": "100", **({"status": state} if state else {})}
    async with http.get("/agents/flights/tasks", params=query, headers={**V1, **headers}) as answered:
        assert answered.status == 200, await answered.text()
        return list((await answered.json())["tasks"])


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with server(flights(), **settings) as http:
        yield http


@pytest.fixture(scope="module")
async def place() -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(openai_conversation_header="X-Chat-Id") as http:
        yield http


@pytest.mark.parametrize("stream", [False, True])
async def test_an_interface_that_repeats_the_conversation_goes_on_with_the_task_that_asked(
    place: aiohttp.ClientSession, stream: bool
) -> None:
    chat = Chat(place, stream=stream)
    assert await chat.say("Book") == "From where?"
    task_id = chat.task_id
    assert MARK.search(chat.turns[-1]["content"])
    assert await chat.say("Berlin") == "When?"
    assert await chat.say("Monday") == "Book: from Berlin on Monday"
    assert chat.task_id == task_id
    assert "dragoman-question" not in chat.turns[-1]["content"]


async def test_the_agent_never_sees_a_mark(place: aiohttp.ClientSession) -> None:
    chat = Chat(place)
    for text in ("Book", "Berlin", "Monday"):
        await chat.say(text)
    await chat.say("Again")
    (task,) = [task for task in await tasks_of(place) if task["id"] == chat.task_id]
    assert "dragoman-question" not in str(task)
    async with place.get(f"/agents/flights/tasks/{chat.task_id}", headers=V1) as answered:
        assert "dragoman-question" not in await answered.text()


async def test_regenerate_answers_nothing_twice(place: aiohttp.ClientSession) -> None:
    chat = Chat(place)
    await chat.say("Book")
    await chat.say("Berlin")
    task_id = chat.task_id
    assert await chat.regenerate() == "When?"
    assert chat.task_id == task_id
    assert await chat.say("Monday") == "Book: from Berlin on Monday"
    assert await chat.regenerate() == "Book: from Berlin on Monday"
    assert chat.task_id == task_id
    async with place.get(f"/agents/flights/tasks/{task_id}", headers=V1) as answered:
        task = await answered.json()
    said = [message["parts"][0]["text"] for message in task["history"]]
    assert said == ["Book", "From where?", "Berlin", "When?", "Monday"]


async def test_regenerate_is_a_repeat_long_after_the_call_was_forgotten(tmp_path: Path) -> None:
    async with serving(store=sqlite_url(tmp_path)) as http:
        chat = Chat(http)
        await chat.say("Book")
        await chat.say("Berlin")
        assert await chat.say("Monday") == "Book: from Berlin on Monday"
        task_id, turns = chat.task_id, chat.turns
    with sqlite3.connect(tmp_path / "dragoman.db") as store:
        store.execute("DELETE FROM calls")
    async with serving(store=sqlite_url(tmp_path)) as http:
        for stream in (False, True):
            chat = Chat(http, stream=stream)
            chat.turns = list(turns)
            assert await chat.regenerate() == "Book: from Berlin on Monday"
            assert chat.task_id == task_id
        chat = Chat(http)
        chat.turns = list(turns[:4])
        assert await chat.regenerate() == "Book: from Berlin on Monday"  # the task has gone on since
        assert chat.task_id == task_id


async def test_an_answer_that_is_edited_after_it_was_heard_begins_a_task(place: aiohttp.ClientSession) -> None:
    chat = Chat(place)
    await chat.say("Book")
    await chat.say("Berlin")
    task_id = chat.task_id
    chat.turns = [*chat.turns[:2], {"role": "user", "content": "Paris"}]
    assert await chat.answer() == "From where?"
    assert chat.task_id != task_id
    async with place.get(f"/agents/flights/tasks/{task_id}", headers=V1) as answered:
        assert "Paris" not in await answered.text()


async def test_two_answers_at_once_are_not_given_to_two_questions(place: aiohttp.ClientSession) -> None:
    chat = Chat(place)
    await chat.say("Book")
    task_id = chat.task_id
    double = [Chat(place), Chat(place), Chat(place)]
    for number, each in enumerate(double):
        each.turns = [*chat.turns, {"role": "user", "content": "Berlin" if number < 2 else "Paris"}]
    shown = await asyncio.gather(*(each.answer() for each in double))
    heard = [each for each in double if each.task_id == task_id]
    assert sorted(shown) in (["From where?", "When?", "When?"], ["From where?", "From where?", "When?"])
    assert {each.turns[-2]["content"] for each in heard} in ({"Berlin"}, {"Paris"})
    async with place.get(f"/agents/flights/tasks/{task_id}", headers=V1) as answered:
        task = await answered.json()
    assert len(task["history"]) == 3
    assert task["status"]["message"]["parts"][0]["text"] == "When?"


async def test_a_mark_that_nobody_made_is_no_mark(place: aiohttp.ClientSession) -> None:
    chat = Chat(place)
    await chat.say("Book")
    task_id = chat.task_id
    content = chat.turns[-1]["content"]
    forged = f"{content[:-3]}{'A' if content[-3] != 'A' else 'B'}{content[-2:]}"
    chat.turns[-1]["content"] = forged
    assert await chat.say("Berlin") == "From where?"
    assert chat.task_id != task_id


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answers", [("{}", "Berlin", "Monday"), ("Book", "Berlin", "{}")], ids=["within", "end"])
async def test_a_mark_that_an_agent_quotes_leads_nobody_into_the_task_of_somebody_else(
    place: aiohttp.ClientSession, stream: bool, answers: tuple[str, ...]
) -> None:
    """Eve has Ada paste a text that holds the mark of Eve's question. Both come with one key."""
    eve, ada = Chat(place), Chat(place, stream=stream)
    await eve.say("Book")
    planted = eve.turns[-1]["content"]
    for answer in answers:
        await ada.say(answer.format(planted))
    assert planted in ada.turns[-1]["content"]
    assert await ada.say("My card is 4111") == "From where?"
    assert ada.task_id != eve.task_id
    assert await eve.say("Rome") == "When?"


async def test_a_mark_that_another_model_quotes_belongs_to_the_question_before_it_alone(
    place: aiohttp.ClientSession,
) -> None:
    eve, ada = Chat(place), Chat(place)
    await eve.say("Book")
    mark = eve.turns[-1]["content"].removeprefix("From where?")
    ada.turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": f"Hello.{mark}"}]
    assert await ada.say("My card is 4111") == "From where?"
    assert ada.task_id != eve.task_id


async def test_a_mark_of_another_server_reaches_it_through_an_agent_that_hands_the_conversation_on(
    tmp_path: Path,
) -> None:
    file = tmp_path / "dragoman.toml"
    async with serving_at(quick(), [flights()]) as elsewhere:
        file.write_text(f'[[agents]]\nid = "flights"\nrun = "openai:{elsewhere}/v1"\nmodel = "flights"\n')
        (entry,) = load(file, {}, {}).agents
        async with server(make_agent(entry)) as http:
            chat = Chat(http)
            shown = [await chat.say(text) for text in ("Book", "Berlin", "Monday")]
            assert shown == ["From where?", "When?", "Book: from Berlin on Monday"]


async def test_a_failed_request_that_left_an_empty_turn_hides_no_mark(place: aiohttp.ClientSession) -> None:
    chat = Chat(place)
    await chat.say("Book")
    chat.turns += [{"role": "user", "content": "Berlin"}, {"role": "assistant", "content": ""}]
    assert await chat.say("Rome") == "When?"


async def test_a_mark_is_worth_nothing_to_another_caller(tmp_path: Path) -> None:
    keys = await add_keys(sqlite_url(tmp_path), ada={}, eve={})
    async with serving(store=sqlite_url(tmp_path)) as http:
        ada, eve = (Chat(http, headers={"Authorization": f"Bearer {keys[name]}"}) for name in ("ada", "eve"))
        await ada.say("Book")
        eve.turns = list(ada.turns)
        assert await eve.say("Paris") == "From where?"
        assert eve.task_id != ada.task_id
        assert await ada.say("Berlin") == "When?"


async def test_without_marks_nobody_is_recognised_by_an_ordinary_key(tmp_path: Path) -> None:
    async with serving(openai_question_mark=False) as http:
        chat = Chat(http)
        assert await chat.say("Book") == "From where?"
        assert "dragoman" not in chat.turns[-1]["content"]
        task_id = chat.task_id
        assert await chat.say("Berlin") == "From where?"
        assert chat.task_id != task_id


@pytest.mark.parametrize("who", [{"user": "ada"}, {"safety_identifier": "a-1"}])
async def test_one_person_is_recognised_by_the_turns_alone(place: aiohttp.ClientSession, who: dict[str, str]) -> None:
    chat = Chat(place, **who)
    chat.shows = without_marks
    for said, shown in (("Hi", "From where?"), ("Rome", "When?"), ("Friday", "Hi: from Rome on Friday")):
        assert await chat.say(said) == shown
    assert await chat.say("Book") == "From where?"
    first = chat.task_id
    chat.turns = chat.turns[2:]  # the interface has forgotten the oldest turns
    assert await chat.say("Berlin") == "When?"
    assert chat.task_id == first


async def test_somebody_else_with_the_same_words_is_not_recognised_by_the_turns(place: aiohttp.ClientSession) -> None:
    ada, eve, nobody = Chat(place, user="ada-2"), Chat(place, user="eve-2"), Chat(place)
    for chat in (ada, eve, nobody):
        chat.shows = without_marks
    await ada.say("Book")
    for other in (eve, nobody):
        other.turns = list(ada.turns)
        assert await other.say("Paris") == "From where?"
        assert other.task_id != ada.task_id
    assert await ada.say("Berlin") == "When?"


async def test_turns_that_fit_two_tasks_fit_none(place: aiohttp.ClientSession) -> None:
    one, two = Chat(place, user="ada-3"), Chat(place, user="ada-3")
    for chat in (one, two):
        chat.shows = without_marks
        await chat.say("Book")
    known = {one.task_id, two.task_id}
    assert await one.say("Berlin") == "From where?"
    assert one.task_id not in known


async def test_turns_that_differ_fit_nothing(place: aiohttp.ClientSession) -> None:
    chat = Chat(place, user="ada-4")
    chat.shows = without_marks
    await chat.say("Book")
    task_id = chat.task_id
    chat.turns[0] = {"role": "user", "content": "Cancel"}
    assert await chat.say("Berlin") == "From where?"
    assert chat.task_id != task_id


async def test_turns_count_for_a_while_only() -> None:
    async with serving(openai_reply_within_s=0.0) as http:
        chat = Chat(http, user="ada")
        chat.shows = without_marks
        await chat.say("Book")
        assert await chat.say("Berlin") == "From where?"


async def test_a_conversation_is_recognised_by_its_header(place: aiohttp.ClientSession) -> None:
    chat, other = (Chat(place, headers={"X-Chat-Id": name}) for name in ("chat-1", "chat-2"))
    for each in (chat, other):
        each.shows = without_marks
        assert await each.say("Book") == "From where?"
    assert chat.task_id != other.task_id
    for each in (chat, other):
        task_id = each.task_id
        assert await each.say("Berlin") == "When?"
        assert await each.regenerate() == "When?"
        assert await each.say("Monday") == "Book: from Berlin on Monday"
        assert each.task_id == task_id
    async with place.get(f"/agents/flights/tasks/{chat.task_id}", headers=V1) as answered:
        assert (await answered.json())["contextId"] == "chat-1"


async def test_a_conversation_that_shows_another_question_begins_a_task(place: aiohttp.ClientSession) -> None:
    chat = Chat(place, headers={"X-Chat-Id": "chat-3"})
    chat.shows = without_marks
    await chat.say("Book")
    first = chat.task_id
    assert await chat.regenerate() == "From where?"  # the first message again is no answer
    second = chat.task_id
    assert first != second
    assert await chat.say("Berlin") == "When?"
    assert chat.task_id == second
    chat.turns[-1]["content"] = "I cannot say."
    assert await chat.say("Monday") == "From where?"
    assert chat.task_id not in (first, second)


async def test_an_interface_that_sends_its_newest_message_alone_is_recognised_by_its_header(
    place: aiohttp.ClientSession,
) -> None:
    chat = Chat(place, headers={"X-Chat-Id": "chat-4"})
    assert await chat.say("Book") == "From where?"
    for said, shown in (("Berlin", "When?"), ("Monday", "Book: from Berlin on Monday")):
        chat.turns = []
        assert await chat.say(said) == shown


@pytest.mark.parametrize("value", ["", "null", "undefined", "{{LIBRECHAT_BODY_CONVERSATIONID}}"])
async def test_an_interface_without_an_id_yet_names_no_conversation(place: aiohttp.ClientSession, value: str) -> None:
    ada, eve = (Chat(place, headers={"X-Chat-Id": value}) for _ in range(2))
    for chat in (ada, eve):
        chat.shows = without_marks
        await chat.say("Book")
    eve.turns = []
    assert await eve.say("Paris") == "From where?"
    assert eve.task_id != ada.task_id


async def test_a_context_that_is_named_limits_the_search_to_it(place: aiohttp.ClientSession) -> None:
    chat = Chat(place)
    await chat.say("Book")
    task_id = chat.task_id
    chat.headers = {"x-dragoman-context-id": "elsewhere"}
    assert await chat.say("Berlin") == "From where?"
    assert chat.task_id != task_id


TITLE = "### Task:\nGenerate a concise title.\n### Chat History:\n<chat_history>\nUSER: Book\n</chat_history>"


@pytest.mark.parametrize("chore", CHORES, ids=lambda chore: chore.begins[:40])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_interface_wants_for_itself_makes_no_task_that_waits(
    place: aiohttp.ClientSession, chore: Any, stream: bool
) -> None:
    chat = Chat(place, stream=stream, headers={"X-Chat-Id": "chat-chores"})
    assert await chat.say("\n".join((chore.begins, *chore.holds))) == "From where?"
    assert "dragoman" not in chat.turns[-1]["content"]
    async with place.get(f"/agents/flights/tasks/{chat.task_id}", headers=V1) as answered:
        task = await answered.json()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["contextId"] != "chat-chores"


def webui_chore(wanted: str, said: list[Turn], **more: Any) -> Turn:
    """What Open WebUI 0.12.4 asks for itself, as it was recorded: the newest turns within a prompt."""
    told = "\n".join(f"{turn['role'].upper()}: {turn['content']}" for turn in said)
    prompt = f"### Task:\n{wanted}\n### Chat History:\n<chat_history>\n{told}\n</chat_history>"
    return {"model": "flights", "messages": [{"role": "user", "content": prompt}], "stream": False, **more}


@pytest.mark.parametrize("headers", [{}, {"X-OpenWebUI-Chat-Id": "560a7772-91fd-47d3-95e1-a27bf6b01fcb"}])
async def test_the_requests_of_open_webui_make_one_task_of_a_conversation(headers: dict[str, str]) -> None:
    """The bodies of a chat of Open WebUI 0.12.4 with this very agent, in their order.

    Its headers name nothing, or the chat, also of what it asks for itself (ENABLE_FORWARD_USER_INFO_HEADERS).
    """
    heard: list[str] = []
    settings = {"openai_question_mark": not headers, "openai_conversation_header": "X-OpenWebUI-Chat-Id"}
    tools = [{"type": "function", "function": {"name": "get_current_timestamp", "parameters": {"properties": {}}}}]

    async with serving(**settings) as http:
        chat = Chat(http, stream=True, tools=tools, headers=headers)
        chore = Chat(http, headers=headers)

        async def ask_for(wanted: str, said: list[Turn], **more: Any) -> None:
            body = webui_chore(wanted, said, **more)
            chore.extra = {name: value for name, value in body.items() if name not in ("model", "messages")}
            heard.append(await chore.request(body["messages"]))

        first = [{"role": "user", "content": "Book"}, {"role": "assistant", "content": ""}]
        await ask_for("Generate a concise title summarizing the chat history.", first, max_tokens=1000)
        shown = []
        for text in ("Book", "Berlin", "Monday"):
            shown.append(await chat.say(text))
            await ask_for("Predict 3-5 useful messages this user might naturally send next.", chat.turns[-6:])
            if text == "Book":
                await ask_for("Generate 1-3 broad tags categorizing the main themes.", chat.turns[-6:])
        assert shown == ["From where?", "When?", "Book: from Berlin on Monday"]
        assert heard == ["From where?"] * 5
        tasks = await tasks_of(http)
        assert [task["status"]["state"] for task in tasks] == ["TASK_STATE_COMPLETED"] * 6
        for task in tasks:
            async with http.get(f"/agents/flights/tasks/{task['id']}", headers=V1) as answered:
                assert "dragoman-question" not in await answered.text()


async def test_what_a_person_writes_is_no_chore(place: aiohttp.ClientSession) -> None:
    chat = Chat(place)
    await chat.say("### Task:\nRespond to the user query using the provided context.\n<context>\n</context>")
    async with place.get(f"/agents/flights/tasks/{chat.task_id}", headers=V1) as answered:
        assert (await answered.json())["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert await chat.say(TITLE) == "When?"


async def test_a_question_is_answered_after_a_restart_and_at_another_server(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with serving(store=store) as http:
        chat = Chat(http)
        await chat.say("Book")
    async with serving(store=store) as http:
        chat.http = http
        assert await chat.say("Berlin") == "When?"
    async with serving(store=store) as http:
        chat.http = http
        assert await chat.say("Monday") == "Book: from Berlin on Monday"


async def test_an_answer_whose_response_a_kill_cut_off_is_not_given_twice(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        """
import asyncio
from pathlib import Path

from dragoman import Agent, Context

flights = Agent("flights", restartable=True)


@flights.skill
async def book(ctx: Context) -> str:
    start = await ctx.ask("From where?")
    Path("heard").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return f"from {start} on {await ctx.ask('When?')}"
"""
    )
    flags = ("slow:flights", "--port", "0", "--store", sqlite_url(tmp_path))
    async with serving_process(tmp_path, *flags) as process:
        async with aiohttp.ClientSession(process.url) as http:
            chat = Chat(http)
            await chat.say("Book")
            task_id = chat.task_id
            answering = asyncio.create_task(chat.say("Berlin"))
            await until((tmp_path / "heard").exists)
            await process.kill()
            with pytest.raises(aiohttp.ClientError):
                await answering
        (tmp_path / "go").touch()
        await process.start()
        async with aiohttp.ClientSession(process.url) as http:
            chat.http = http
            assert await chat.answer() == "When?"
            assert chat.task_id == task_id
            assert await chat.say("Monday") == "from Berlin on Monday"
            (task,) = await tasks_of(http)
    assert [message["parts"][0]["text"] for message in task["history"]][::2] == ["Book", "Berlin", "Monday"]


async def test_a_page_may_send_the_id_of_its_conversation() -> None:
    ask = {"Origin": "https://chat.example.org", "Access-Control-Request-Method": "POST"}
    settings = {"cors_origins": ("https://chat.example.org",), "openai_conversation_header": "X-Chat-Id"}
    async with serving(**settings) as http, http.options("/v1/chat/completions", headers=ask) as answered:
        assert "x-chat-id" in answered.headers["Access-Control-Allow-Headers"].split(", ")


async def test_each_turn_may_reach_another_replica(postgres_url: str) -> None:
    async with servers(3, lambda: [flights()], store=postgres_url) as places:
        chat = Chat(places[0])
        await chat.say("Book")
        task_id = chat.task_id
        chat.http = places[1]
        assert await chat.say("Berlin") == "When?"
        chat.http = places[2]
        assert await chat.regenerate() == "When?"
        assert await chat.say("Monday") == "Book: from Berlin on Monday"
        chat.http, chat.extra = places[0], {"stream": True}
        assert await chat.regenerate() == "Book: from Berlin on Monday"
        assert chat.task_id == task_id
        await chat.say("Book")
        double = [Chat(place) for place in places]
        for number, each in enumerate(double):
            each.turns = [*chat.turns, {"role": "user", "content": f"Rome {number}"}]
        assert sorted(await asyncio.gather(*(each.answer() for each in double))) == ["From where?"] * 2 + ["When?"]


@pytest.mark.parametrize("direct", [False, "auto"])
async def test_nobody_waits_for_the_answer_to_a_chore_whatever_its_agent_is(direct: Any) -> None:
    async with server(flights(direct=direct)) as http:
        chat = Chat(http)
        assert await chat.say(TITLE) == "From where?"
        assert [task["status"]["state"] for task in await tasks_of(http)] == ["TASK_STATE_COMPLETED"]


@pytest.mark.parametrize("marks", [True, False])
async def test_no_answer_lands_in_the_task_of_somebody_else(tmp_path: Path, marks: bool) -> None:
    """Two people with one key and the same words: many steps in any order, at once, over streams, with Regenerate."""
    rng = random.Random(1)
    keys = await add_keys(sqlite_url(tmp_path), both={})
    async with serving(store=sqlite_url(tmp_path)) as http:
        people = {name: Chat(http, headers={"Authorization": f"Bearer {keys['both']}"}) for name in ("ada", "eve")}
        for chat in people.values():
            chat.shows = str if marks else without_marks
        script = ("Book", "Berlin", "Monday")
        own: dict[str, set[str]] = {name: set() for name in people}
        place = dict.fromkeys(people, 0)
        for _ in range(times(250, 700) if marks else times(100, 300)):
            batch = [rng.choice(("ada", "eve"))] if rng.random() < 0.5 else ["ada", "eve"]
            rng.shuffle(batch)

            async def step(name: str) -> None:
                chat, at = people[name], place[name]
                chat.extra = {"stream": rng.random() < 0.3}
                if at and rng.random() < 0.1:
                    assert await chat.regenerate()
                    own[name].add(chat.task_id)
                    return
                text = script[at % 3] if at % 3 == 0 else f"{script[at % 3]} for {name}"
                shown = await chat.say(text)
                own[name].add(chat.task_id)
                assert (
                    not marks
                    or shown == ("From where?", "When?", f"Book: from Berlin for {name} on Monday for {name}")[at % 3]
                )
                place[name] = at + 1
                if place[name] % 3 == 0:
                    chat.turns.clear()
                    place[name] = 0

            await asyncio.gather(*map(step, batch))
        assert not own["ada"] & own["eve"]
        for name, other in (("ada", "eve"), ("eve", "ada")):
            for task_id in list(own[name]):
                async with http.get(
                    f"/agents/flights/tasks/{task_id}", headers={**V1, **people[name].headers}
                ) as answered:
                    text = await answered.text()
                    assert f"for {other}" not in text, text


async def test_a_key_of_one_person_is_recognised_by_the_turns(tmp_path: Path) -> None:
    keys = await add_keys(sqlite_url(tmp_path), ada={"one_person": True}, eve={})
    async with serving(store=sqlite_url(tmp_path), openai_question_mark=False) as http:
        for name, recognised in (("ada", True), ("eve", False)):
            chat = Chat(http, headers={"Authorization": f"Bearer {keys[name]}"})
            await chat.say("Book")
            task_id = chat.task_id
            assert await chat.say("Berlin") == ("When?" if recognised else "From where?")
            assert (chat.task_id == task_id) is recognised


async def test_one_person_alone_is_never_asked_twice(tmp_path: Path) -> None:
    keys = await add_keys(sqlite_url(tmp_path), ada={"one_person": True})
    async with serving(store=sqlite_url(tmp_path), openai_question_mark=False) as http:
        chat = Chat(http, headers={"Authorization": f"Bearer {keys['ada']}"})
        for number in range(30):
            shown = [await chat.say(text) for text in (f"Book {number % 3}", "Berlin", "Monday")]
            assert shown == ["From where?", "When?", f"Book {number % 3}: from Berlin on Monday"]
