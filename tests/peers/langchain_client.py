"""LangChain's ChatOpenAI against a server: `python langchain_client.py BASE_URL [WORD …]`.

It is used as its documentation shows, over chat completions and over Responses: it sends no header of ours.
"""

import asyncio
import functools
import sys
from collections.abc import Callable
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from report import Scenario, run, selected
from trip import WORDS

Made = Callable[[str], ChatOpenAI]


def maker(base_url: str, **options: Any) -> Made:
    """Make models that are agents of the server."""
    return lambda name: ChatOpenAI(model=name, base_url=f"{base_url}/v1", api_key="any", **options)


async def completion(make: Made) -> None:
    answer = await make("echo").ainvoke("hello you")
    assert answer.text == "hello you", answer
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] == 4, answer


async def stream(make: Made) -> None:
    pieces = [piece.text async for piece in make("countdown").astream("3 every 0.05")]
    assert "".join(pieces) == "3\n2\n1\n", pieces
    assert sum(bool(piece) for piece in pieces) >= 3, pieces


async def question(make: Made) -> None:
    """The conversation is sent with every message."""
    said: list[BaseMessage] = []
    for words, shown in WORDS:
        said.append(HumanMessage(words))
        answer = await make("trip").ainvoke(said)
        assert answer.text.startswith(shown), answer
        said.append(answer)


def scenarios(base_url: str) -> list[Scenario]:
    """Every scenario, named `lane/scenario`."""
    lanes = {
        "chat": maker(base_url),
        "responses": maker(base_url, use_responses_api=True, use_previous_response_id=True),
    }
    return [
        (f"{lane}/{scenario.__name__}", functools.partial(scenario, make))
        for lane, make in lanes.items()
        for scenario in (completion, stream, question)
    ]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(selected(scenarios(sys.argv[1]), sys.argv[2:]))))
