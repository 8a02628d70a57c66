"""Official OpenAI client against a server: `python openai_client.py BASE_URL [WORD …]`."""

import asyncio
import functools
import sys
from collections.abc import Awaitable
from typing import TypeVar

import openai
from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
from report import Scenario, run, selected

E = TypeVar("E", bound=openai.APIError)


def client(base_url: str) -> AsyncOpenAI:
    """A client as its documentation makes it, which repeats what fails."""
    return AsyncOpenAI(base_url=f"{base_url}/v1", api_key="any", max_retries=2)


async def collected(stream: AsyncStream[ChatCompletionChunk]) -> tuple[str, list[str | None], int]:
    """The text of a stream, the reasons for which its chunks say it finished, and its tokens."""
    pieces, reasons, tokens = [], [], 0
    async for chunk in stream:
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            reasons.append(choice.finish_reason)
        tokens = chunk.usage.total_tokens if chunk.usage is not None else tokens
    return "".join(pieces), reasons, tokens


async def models(chat: AsyncOpenAI) -> None:
    listed = [model.id async for model in chat.models.list()]
    assert {"echo", "countdown", "trip"} <= set(listed), listed
    assert (await chat.models.retrieve("echo")).object == "model"


async def completion(chat: AsyncOpenAI) -> None:
    answer = await chat.chat.completions.create(model="echo", messages=[{"role": "user", "content": "hello you"}])
    choice = answer.choices[0]
    assert (choice.message.content, choice.message.role, choice.finish_reason) == ("hello you", "assistant", "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == 4, answer.usage


async def stream(chat: AsyncOpenAI) -> None:
    chunks = await chat.chat.completions.create(
        model="countdown",
        messages=[{"role": "user", "content": "3 every 0.05"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    text, reasons, _ = await collected(chunks)
    assert text == "3\n2\n1\n", text
    assert [reason for reason in reasons if reason] == ["stop"]
    assert reasons[-1] == "stop"
    async with chat.chat.completions.stream(model="echo", messages=[{"role": "user", "content": "a b"}]) as helped:
        whole = await helped.get_final_completion()
    assert whole.choices[0].message.content == "a b"


async def question(chat: AsyncOpenAI) -> None:
    ask = chat.chat.completions.with_raw_response.create
    asked = await ask(model="trip", messages=[{"role": "user", "content": "book a trip"}])
    task = {"x-dragoman-task-id": asked.headers["x-dragoman-task-id"]}
    said = [asked.parse().choices[0].message.content]
    for word in ("Lyon", "Oslo"):
        answer = await ask(model="trip", messages=[{"role": "user", "content": word}], extra_headers=task)
        said.append(answer.parse().choices[0].message.content)
    assert [str(text).partition("\n\n[//]: # (")[0] for text in said] == [
        *("From where?", "To where?", "Booked: from Lyon to Oslo")
    ], said
    turns: list[ChatCompletionMessageParam] = []
    for word, shown in (("book", "From where?"), ("Lyon", "To where?"), ("Oslo", "Booked: from Lyon to Oslo")):
        turns.append({"role": "user", "content": word})
        repeated = await chat.chat.completions.create(model="trip", messages=turns)
        content = repeated.choices[0].message.content or ""
        assert content.startswith(shown), content
        turns.append({"role": "assistant", "content": content})


async def refused(kind: type[E], asked: Awaitable[object]) -> E:
    """The error of that kind with which a request is answered."""
    try:
        answer = await asked
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} expected, got {answer}")


async def unknown_model(chat: AsyncOpenAI) -> None:
    asked = chat.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "hi"}])
    error = await refused(openai.NotFoundError, asked)
    assert error.code == "model_not_found", error.body


async def failed(chat: AsyncOpenAI) -> None:
    """It is told once, and not tried again: each try would be another task."""
    asked = chat.chat.completions.create(model="fail", messages=[{"role": "user", "content": "hi"}])
    error = await refused(openai.InternalServerError, asked)
    assert error.code == "agent_failed", error.body
    assert error.response.request.headers["x-stainless-retry-count"] == "0", "it was sent again"


async def failed_stream(chat: AsyncOpenAI) -> None:
    chunks = await chat.chat.completions.create(model="fail", messages=[{"role": "user", "content": "hi"}], stream=True)
    error = await refused(openai.APIError, collected(chunks))
    assert "reference" in error.message, error.message


async def rejected(chat: AsyncOpenAI) -> None:
    asked = chat.chat.completions.create(model="reject", messages=[{"role": "user", "content": "hi"}])
    error = await refused(openai.BadRequestError, asked)
    assert "takes no tasks" in error.message, error.message


async def history(chat: AsyncOpenAI) -> None:
    """A conversation with a picture, as chat programs send it."""
    picture = "data:image/png;base64,iVBORw0KGgo="
    answer = await chat.chat.completions.create(
        model="papers",
        messages=[
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]},
        ],
        temperature=0.2,
        user="u",
    )
    assert '"size":8' in (answer.choices[0].message.content or ""), answer


SCENARIOS = (models, completion, stream, question, unknown_model, failed, failed_stream, rejected, history)


def scenarios(base_url: str) -> list[Scenario]:
    """Every scenario, named `chat/scenario`."""
    return [(f"chat/{scenario.__name__}", functools.partial(scenario, client(base_url))) for scenario in SCENARIOS]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(selected(scenarios(sys.argv[1]), sys.argv[2:]))))
