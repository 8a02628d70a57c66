"""The official OpenAI client's Responses against a server: `python responses_client.py BASE_URL [WORD …]`.

Every response and every event is held against the types of the package: nothing may be missing, and nothing unknown.
"""

import asyncio
import functools
import sys
from collections.abc import AsyncIterable, Awaitable
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import openai
from openai import AsyncOpenAI, BaseModel
from openai.types.conversations import Conversation, ConversationItemList
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter
from report import Scenario, run, selected

E = TypeVar("E", bound=openai.APIError)
M = TypeVar("M", bound=BaseModel)

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FIELDS = Path(__file__).parents[2] / "src" / "dragoman" / "cli" / "topics" / "responses-fields.txt"


def client(base_url: str) -> AsyncOpenAI:
    """A client as its documentation makes it."""
    return AsyncOpenAI(base_url=f"{base_url}/v1", api_key="any", max_retries=2)


def unknown(value: Any, path: str = "") -> list[str]:
    """The places of fields that the types do not know."""
    if isinstance(value, list):
        return [found for at, each in enumerate(value) for found in unknown(each, f"{path}[{at}]")]
    if not isinstance(value, BaseModel):
        return []
    extra = [f"{path}.{name}" for name in value.model_extra or {}]
    return extra + [
        found for name in type(value).model_fields for found in unknown(getattr(value, name), f"{path}.{name}")
    ]


def checked(kind: type[M], answer: BaseModel) -> M:
    """The answer, if it is exactly one of that type. The client itself takes anything."""
    found = kind.model_validate(answer.to_dict())
    assert not unknown(found), unknown(found)
    return found


async def followed(stream: AsyncIterable[Any], first: int = 0) -> list[Any]:
    """The events of a stream, each exactly one of the types, numbered without a gap."""
    events = []
    async for event in stream:
        found = EVENTS.validate_python(event.to_dict())
        assert not unknown(found), unknown(found)
        events.append(found)
    assert [event.sequence_number for event in events] == [*range(first, first + len(events))], events
    assert events[-1].type in ("response.completed", "response.failed", "response.incomplete"), events[-1]
    return events


async def create(api: AsyncOpenAI) -> None:
    made = checked(Response, await api.responses.create(model="echo", input="hello you"))
    assert (made.output_text, made.status) == ("hello you", "completed"), made
    assert made.usage is not None
    assert made.usage.total_tokens == 4, made.usage
    assert checked(Response, await api.responses.retrieve(made.id)) == made


async def stream(api: AsyncOpenAI) -> None:
    events = await followed(await api.responses.create(model="countdown", input="3 every 0.05", stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "3\n2\n1\n"
    assert events[-1].response.output_text == "3\n2\n1\n"
    async with api.responses.stream(model="echo", input="a b") as helped:
        whole = await helped.get_final_response()
    assert whole.output_text == "a b", whole


async def background(api: AsyncOpenAI) -> None:
    """A stream that is left goes on from where it was, with the same events."""
    begun = await api.responses.create(model="countdown", input="9 every 0.05", background=True, stream=True)
    seen: list[Any] = []
    async for event in begun:
        seen.append(event)
        if len(seen) == 7:
            break
    await begun.close()
    response_id = seen[0].response.id
    assert checked(Response, await api.responses.retrieve(response_id)).status in ("in_progress", "completed")
    rest = await followed(await api.responses.retrieve(response_id, stream=True, starting_after=6), 7)
    whole = await followed(await api.responses.retrieve(response_id, stream=True))
    assert [event.to_dict() for event in [*seen, *rest]] == [event.to_dict() for event in whole]
    assert whole[-1].response.background
    polled = checked(Response, await api.responses.create(model="echo", input="later", background=True))
    while polled.status in ("queued", "in_progress"):
        polled = checked(Response, await api.responses.retrieve(polled.id))
    assert polled.output_text == "later"


async def question(api: AsyncOpenAI) -> None:
    asked = checked(Response, await api.responses.create(model="trip", input="book a trip"))
    assert asked.metadata == {"dragoman_task_state": "input-required"}
    second = await api.responses.create(input="Lyon", previous_response_id=asked.id)
    events = await followed(await api.responses.create(input="Oslo", previous_response_id=second.id, stream=True))
    said = [asked.output_text, second.output_text, events[-1].response.output_text]
    assert said == ["From where?", "To where?", "Booked: from Lyon to Oslo"], said
    again = [(await api.responses.retrieve(each.id)).output_text for each in (asked, second, events[-1].response)]
    assert again == said


async def cancel(api: AsyncOpenAI) -> None:
    begun = await api.responses.create(model="countdown", input="99 every 0.1", background=True)
    canceled = checked(Response, await api.responses.cancel(begun.id))
    assert canceled.status == "cancelled", canceled
    assert checked(Response, await api.responses.cancel(begun.id)) == canceled
    assert (await followed(await api.responses.retrieve(begun.id, stream=True)))[-1].response == canceled


async def delete(api: AsyncOpenAI) -> None:
    asked = await api.responses.create(model="trip", input="book a trip")
    error = await refused(openai.ConflictError, api.responses.delete(asked.id))
    assert error.response.request.headers["x-stainless-retry-count"] == "0", "it was sent again"
    made = await api.responses.create(model="echo", input="hello")
    await api.responses.delete(made.id)
    await refused(openai.NotFoundError, api.responses.retrieve(made.id))


async def items(api: AsyncOpenAI) -> None:
    said = [{"role": "user", "content": str(number)} for number in range(3)]
    made = await api.responses.create(model="echo", input=said, instructions="Be brief.")
    checked(ResponseItemList, await api.get(f"/responses/{made.id}/input_items", cast_to=ResponseItemList))
    listed = [item.content[0].text async for item in api.responses.input_items.list(made.id, limit=2, order="asc")]
    assert listed == ["Be brief.", "0", "1", "2"], listed


async def conversation(api: AsyncOpenAI) -> None:
    made = checked(Conversation, await api.conversations.create())
    said = []
    for word in ("book a trip", "Lyon", "Oslo"):
        answer = checked(Response, await api.responses.create(model="trip", input=word, conversation=made.id))
        said.append(answer.output_text)
    assert said == ["From where?", "To where?", "Booked: from Lyon to Oslo"], said
    path = f"/conversations/{made.id}/items"
    checked(ConversationItemList, await api.get(path, cast_to=ConversationItemList))
    listed = [item.role async for item in api.conversations.items.list(made.id, limit=4)]
    assert listed == ["assistant", "user"] * 3, listed
    assert checked(Conversation, await api.conversations.retrieve(made.id)) == made
    assert (await api.conversations.delete(made.id)).deleted


async def files(api: AsyncOpenAI) -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    content = [{"type": "input_image", "image_url": picture, "detail": "auto"}]
    made = checked(Response, await api.responses.create(model="papers", input=[{"role": "user", "content": content}]))
    assert '"size":8' in made.output_text, made


async def refusals(api: AsyncOpenAI) -> None:
    error: openai.APIError = await refused(openai.NotFoundError, api.responses.create(model="gpt-4", input="hi"))
    assert error.code == "model_not_found", error.body
    tools: Any = [{"type": "function", "name": "f", "parameters": {}, "strict": True}]
    error = await refused(openai.BadRequestError, api.responses.create(model="echo", input="hi", tools=tools))
    assert error.param == "tools", error.body
    error = await refused(openai.NotFoundError, api.embeddings.create(model="echo", input="hi"))
    assert error.code == "unsupported_endpoint", error.body
    for agent in ("fail", "reject"):
        made = checked(Response, await api.responses.create(model=agent, input="hi"))
        assert made.status == "failed", made


async def fields(_api: AsyncOpenAI) -> None:
    """`dragoman help responses-fields` has each field that the package can send."""
    text = FIELDS.read_text(encoding="utf-8")
    missing = [name for name in get_type_hints(ResponseCreateParamsStreaming) if f"`{name}`" not in text]
    assert not missing, missing


async def refused(kind: type[E], asked: Awaitable[object]) -> E:
    """The error of that kind with which a request is answered."""
    try:
        answer = await asked
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} expected, got {answer}")


SCENARIOS = (
    create,
    stream,
    background,
    question,
    cancel,
    delete,
    items,
    conversation,
    files,
    refusals,
    fields,
)


def scenarios(base_url: str) -> list[Scenario]:
    """Every scenario, named `responses/scenario`."""
    return [(f"responses/{scenario.__name__}", functools.partial(scenario, client(base_url))) for scenario in SCENARIOS]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(selected(scenarios(sys.argv[1]), sys.argv[2:]))))
