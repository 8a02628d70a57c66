"""Executors of the official SDK as its samples write them, for the release that is installed: 1.x or 0.3."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from a2a import types
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater

PROTOBUF = hasattr(types.Message, "DESCRIPTOR")
"""Whether it is 1.x."""


def text(words: str) -> list[Any]:
    return [types.Part(text=words)] if PROTOBUF else [types.Part(root=types.TextPart(text=words))]


def get_message_text(message: Any) -> str:
    return "".join(part.text if PROTOBUF else part.root.text for part in message.parts)


def state(word: str) -> Any:
    return types.TaskState.Value(f"TASK_STATE_{word.upper()}") if PROTOBUF else getattr(types.TaskState, word)


def new_task(context: RequestContext, word: str = "submitted", artifacts: Sequence[Any] = ()) -> Any:
    return types.Task(
        id=context.task_id,
        context_id=context.context_id,
        status=types.TaskStatus(state=state(word)),
        history=[context.message],
        artifacts=list(artifacts),
    )


def artifact(id: str, words: str) -> Any:  # noqa: A002
    return types.Artifact(artifact_id=id, parts=text(words))


def card(name: str, **more: Any) -> Any:
    """An AgentCard with one skill."""
    skill = types.AgentSkill(
        id="book", name="Book", description="Books a table", tags=["booking"], examples=["A table"]
    )
    members = {
        "name": name,
        "description": "Books",
        "version": "2.1.0",
        "capabilities": types.AgentCapabilities(),
        "default_input_modes": ["text/plain"],
        "default_output_modes": ["application/json"],
        "skills": [skill],
    }
    address = {} if PROTOBUF else {"url": "http://old.example/"}
    return types.AgentCard(**members, **address, **more)


def part_kinds(message: Any) -> list[str]:
    """What the parts of a message hold."""
    return [part.WhichOneof("content") if PROTOBUF else part.root.kind for part in message.parts]


class Booking(AgentExecutor):
    """Asks for the day, and books."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.heard.append(context.get_user_input())
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            await event_queue.enqueue_event(new_task(context))
            await updater.start_work()
            await updater.add_artifact(text("A table. "), artifact_id="log")
            await updater.requires_input(updater.new_agent_message(text("For which day?")))
            return
        await updater.start_work()
        await updater.add_artifact(text(f"Booked for {context.get_user_input()}"), artifact_id="log", append=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("cancel is not supported")


Step = Callable[[RequestContext, EventQueue, TaskUpdater], Any]


class Scripted(AgentExecutor):
    """Does a step of the test for each message, the last one again and again. `canceled` is set by `cancel`."""

    def __init__(self, *steps: Step, on_cancel: Step | None = None) -> None:
        self.contexts: list[RequestContext] = []
        self.canceled = asyncio.Event()
        self._steps = list(steps)
        self._on_cancel = on_cancel

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.contexts.append(context)
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        await step(context, event_queue, TaskUpdater(event_queue, context.task_id, context.context_id))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.contexts.append(context)
        self.canceled.set()
        if self._on_cancel is not None:
            await self._on_cancel(context, event_queue, TaskUpdater(event_queue, context.task_id, context.context_id))
