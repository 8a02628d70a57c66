"""OpenAI's Agents SDK with this server's agents as its models: `python openai_agents_client.py BASE_URL [WORD …]`.

The SDK is used as its documentation shows, over Responses and over chat completions: it sends no header of ours.
"""

import asyncio
import functools
import sys
from collections.abc import Callable

from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    RunResultStreaming,
    TResponseInputItem,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from report import Scenario, run, selected
from trip import WORDS

Made = Callable[[str], Agent]


def maker(base_url: str, model: type[OpenAIResponsesModel] | type[OpenAIChatCompletionsModel]) -> Made:
    """Make agents of the SDK whose model is an agent of the server."""
    api = AsyncOpenAI(base_url=f"{base_url}/v1", api_key="any")

    def make(name: str) -> Agent:
        made: Model = model(model=name, openai_client=api)
        return Agent(name="caller", instructions="Be brief.", model=made)

    return make


async def text_of(streamed: RunResultStreaming) -> str:
    """The text of a stream, as its deltas give it."""
    deltas = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return "".join(deltas)


async def completion(make: Made) -> None:
    result = await Runner.run(make("echo"), "hello you")
    assert result.final_output == "hello you", result


async def stream(make: Made) -> None:
    streamed = Runner.run_streamed(make("countdown"), "3 every 0.05")
    assert await text_of(streamed) == "3\n2\n1\n"
    assert streamed.final_output == "3\n2\n1\n", streamed


async def repeated(make: Made) -> None:
    """The items of earlier turns are sent with every message, as the SDK's loops do."""
    said: list[TResponseInputItem] = []
    for words, shown in WORDS:
        result = await Runner.run(make("trip"), [*said, {"role": "user", "content": words}])
        assert str(result.final_output).startswith(shown), result
        said = result.to_input_list()


async def continued(make: Made) -> None:
    """The newest message alone is sent, with the id of the response before it."""
    before: str | None = None
    for words, shown in WORDS:
        result = await Runner.run(make("trip"), words, previous_response_id=before)
        assert str(result.final_output).startswith(shown), result
        before = result.last_response_id


def scenarios(base_url: str) -> list[Scenario]:
    """Every scenario, named `lane/scenario`."""
    set_tracing_disabled(True)  # else it calls OpenAI
    responses, chat = maker(base_url, OpenAIResponsesModel), maker(base_url, OpenAIChatCompletionsModel)
    return [
        (f"{lane}/{name}", functools.partial(scenario, make))
        for lane, make, question in (("responses", responses, continued), ("chat", chat, repeated))
        for name, scenario in {"completion": completion, "stream": stream, "question": question}.items()
    ]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(selected(scenarios(sys.argv[1]), sys.argv[2:]))))
