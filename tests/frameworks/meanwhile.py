"""Things that a test does while an agent is in the middle of its answer."""

import asyncio
from collections.abc import Awaitable, Callable

from dragoman.client import Connection
from dragoman.engine.api import Runner
from dragoman.model.updates import ArtifactUpdate
from dragoman.testing import client
from tests.frameworks.kit import Model

LIMIT_S = 60.0


async def meanwhile(connection: Connection, message: str, then: Callable[[str], Awaitable[None]]) -> str:
    """The agent's answer; when its first piece is there, `then` is awaited with the id of the task."""
    text, begun = "", False
    async with asyncio.timeout(LIMIT_S):
        async for update in connection.stream(message):
            if isinstance(update, ArtifactUpdate):
                text += "".join(part.text or "" for part in update.artifact.parts)
                if not begun:
                    begun = True
                    await then(update.task_id)
    return text


async def canceled(agent: Runner, model: Model) -> bool:
    """Whether the model's caller leaves when the task is canceled in the middle of an answer that is held."""
    async with client(agent) as connection:

        async def cancel(task_id: str) -> None:
            await connection.cancel(task_id)

        await meanwhile(connection, "Tell me a story", cancel)
        return await asyncio.to_thread(model.left.wait, LIMIT_S)
