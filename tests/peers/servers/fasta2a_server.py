"""Server of FastA2A 2.1.1: `python fasta2a_server.py` prints its URL.

It answers every send at once, takes up no task again, and has no webhooks; its agent does the rest of what sdk1.py's
does.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage
from listening import serve, write_down

WORKERS = 32
"""Tasks that run at once: each worker takes one after the other."""


class Agent(Worker[Any]):
    """Does what the first word says, else gives the parts back. One that is slow is over with its cancelation."""

    async def run_task(self, params: TaskSendParams) -> None:
        task_id, context_id, parts = params["id"], params["context_id"], params["message"]["parts"]
        text = next((part["text"] for part in parts if "text" in part), "")
        write_down(text)
        word, _, rest = text.partition(" ")
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        match word:
            case "count":
                chunks = [{"text": f"{n} "} for n in range(int(rest))]
                for n, chunk in enumerate(chunks):
                    piece = Artifact(artifact_id="count", parts=[chunk])
                    await self.publish_artifact(
                        task_id, context_id, piece, append=n > 0, last_chunk=n == len(chunks) - 1
                    )
                whole = [Artifact(artifact_id="count", parts=chunks)]
                await self.storage.update_task(task_id, state="completed", new_artifacts=whole)
            case "pace":
                texts = [{"text": f"{task_id} <0>" if n == 0 else f"<{n}>"} for n in range(int(rest))]
                notes = [{"data": {"n": n}} for n in range(0, len(texts), 4)]
                for n, text in enumerate(texts):
                    piece = Artifact(artifact_id="pace", parts=[text])
                    await self.publish_artifact(
                        task_id, context_id, piece, append=n > 0, last_chunk=n == len(texts) - 1
                    )
                    if n % 4 == 0:
                        note = Artifact(artifact_id="log", parts=[notes[n // 4]])
                        await self.publish_artifact(task_id, context_id, note, append=n > 0, last_chunk=False)
                    await asyncio.sleep(0.003)
                whole = [Artifact(artifact_id="pace", parts=texts), Artifact(artifact_id="log", parts=notes)]
                await self.storage.update_task(task_id, state="completed", new_artifacts=whole)
            case "ask":
                question = Message(role="agent", parts=[{"text": "Which city?"}], message_id=str(uuid.uuid4()))
                await self.storage.update_task(task_id, state="input-required", new_messages=[question])
            case "fail":
                raise RuntimeError("It broke")
            case "slow":
                pass
            case _:
                echo = Artifact(artifact_id="echo", name="echo", parts=parts)
                await self.publish_artifact(task_id, context_id, echo)
                await self.storage.update_task(task_id, state="completed", new_artifacts=[echo])

    async def cancel_task(self, params: TaskIdParams) -> None:
        if await self.storage.load_task(params["id"]) is not None:
            await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return list(history)

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return []


def application(url: str) -> Any:
    """The agent at `url`."""
    storage, broker = InMemoryStorage[Any](), InMemoryBroker()
    worker = Agent(storage=storage, broker=broker)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, AsyncExitStack() as running:
            for _ in range(WORKERS):
                await running.enter_async_context(worker.run())
            yield

    return FastA2A(storage=storage, broker=broker, name="FastA2A", url=url, lifespan=lifespan)


if __name__ == "__main__":
    asyncio.run(serve(application))
