"""An agent of the OpenAI Agents SDK that is killed in the middle: it calls three tools in turn, and then answers.

It is served by a process of its own: `chores.py:agent`. `LEDGER` names the file in which it writes what the model was
asked, and what the tools did.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, function_tool, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

set_tracing_disabled(True)

PAUSE_S = 0.01
CALLS = 3


def write(**line: Any) -> None:
    """Add a line to the ledger, which is on disk when this returns."""
    ledger = os.open(Path(os.environ["LEDGER"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, f"{json.dumps(line)}\n".encode())
        os.fsync(ledger)
    finally:
        os.close(ledger)


@function_tool
async def work(task: str, number: int) -> str:
    """Do a part of the work."""
    write(task=task, did=number)
    await asyncio.sleep(PAUSE_S)
    return f"{task}: done {number}"


def shown(item: Any) -> str:
    """An item of the input, as a line."""
    if item.get("type") == "function_call":
        return f"call {item['call_id']}"
    if item.get("type") == "function_call_output":
        return f"result {item['output']}"
    content = item["content"]
    return content if isinstance(content, str) else "".join(piece["text"] for piece in content)


class Foreman(Model):
    """Says which part comes next, calls the tool for it, and in the end says that all is done."""

    async def get_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream_response(self, _: Any, input: Any, *__: Any, **___: Any) -> AsyncIterator[Any]:  # noqa: A002
        last = max(place for place, item in enumerate(input) if item.get("role") == "user")
        task, number = shown(input[last]), sum(item.get("type") == "function_call_output" for item in input[last:])
        write(task=task, asked=[shown(item) for item in input])
        text = f"{task}-{number} " if number < CALLS else f"{task} is done"
        yield ResponseCreatedEvent.model_construct(type="response.created", sequence_number=0)
        for word in (text[:3], text[3:]):
            await asyncio.sleep(PAUSE_S)
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta=word,
                content_index=0,
                item_id="text",
                logprobs=[],
                output_index=0,
                sequence_number=1,
            )
        said = ResponseOutputText(annotations=[], text=text, type="output_text")
        output: list[Any] = [
            ResponseOutputMessage(id="text", content=[said], role="assistant", status="completed", type="message")
        ]
        if number < CALLS:
            given = json.dumps({"task": task, "number": number})
            output.append(
                ResponseFunctionToolCall(
                    arguments=given, call_id=f"{task}/{number}", name="work", type="function_call", id="call"
                )
            )
        whole = Response.model_construct(id="answer", output=output, usage=None, model="foreman")
        yield ResponseCompletedEvent.model_construct(response=whole, sequence_number=2, type="response.completed")


agent = Agent("foreman", model=Foreman(), tools=[work])
