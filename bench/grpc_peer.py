"""The agent that clients call over gRPC: an echo of messages, and chunks for a text such as `100 burst`.

grpc.aio and the official generated code, and nothing that thinks: `grpc_peer.py PORT`.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceServicer, add_A2AServiceServicer_to_server


def _artifact(parts: list[pb.Part]) -> pb.Artifact:
    return pb.Artifact(artifact_id="artifact-1", parts=parts)


def _task(state: pb.TaskState, **fields: Any) -> pb.Task:
    return pb.Task(id=str(uuid.uuid4()), context_id=str(uuid.uuid4()), status=pb.TaskStatus(state=state), **fields)


class Peer(A2AServiceServicer):
    """Answers without delay, and keeps nothing."""

    async def SendMessage(  # noqa: N802  the procedure's name
        self, request: pb.SendMessageRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.SendMessageResponse:
        artifacts = [_artifact(list(request.message.parts))]
        return pb.SendMessageResponse(
            task=_task(pb.TASK_STATE_COMPLETED, artifacts=artifacts, history=[request.message])
        )

    async def SendStreamingMessage(  # noqa: N802  the procedure's name
        self, request: pb.SendMessageRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.StreamResponse]:
        count, pace = request.message.parts[0].text.split()
        task = _task(pb.TASK_STATE_SUBMITTED, history=[request.message])
        ids = {"task_id": task.id, "context_id": task.context_id}
        yield pb.StreamResponse(task=task)
        for state in (pb.TASK_STATE_WORKING, pb.TASK_STATE_COMPLETED):
            if state == pb.TASK_STATE_COMPLETED:
                for number in range(int(count)):
                    if pace == "turns":
                        await asyncio.sleep(0)
                    chunk = _artifact([pb.Part(text=f"chunk {number:06d} ")])
                    yield pb.StreamResponse(
                        artifact_update=pb.TaskArtifactUpdateEvent(artifact=chunk, append=number > 0, **ids)
                    )
            yield pb.StreamResponse(status_update=pb.TaskStatusUpdateEvent(status=pb.TaskStatus(state=state), **ids))


async def main(port: int) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"127.0.0.1:{port}")
    add_A2AServiceServicer_to_server(Peer(), server)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
