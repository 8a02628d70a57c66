"""The official SDK's client in the demo: sends the message, and after a cut subscribes again until the task ends.

`python -m dragoman.cli.demo.sdk_client URL WEBHOOK TEXT` prints a JSON object a line: `task`, `artifact`, `state` or
`cut`. The SDK's client repeats nothing by itself. So the demo does what an application can do with it: it subscribes
again, and reads the task, once a second.
"""

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator

from a2a.client import ClientConfig, create_client
from a2a.client.client import Client
from a2a.types.a2a_pb2 import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

PAUSE_S = 1.0

ENDED = (
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_REJECTED,
)


class SdkCaller:
    """A call, and what came of it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._task_id = ""
        self._state = TaskState.TASK_STATE_UNSPECIFIED

    async def work(self, webhook: str, text: str) -> None:
        """Follow the task to its end."""
        message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
        configuration = SendMessageConfiguration(task_push_notification_config=TaskPushNotificationConfig(url=webhook))
        await self._follow(self._client.send_message(SendMessageRequest(message=message, configuration=configuration)))
        while self._task_id and self._state not in ENDED:
            await asyncio.sleep(PAUSE_S)
            await self._follow(self._client.subscribe(SubscribeToTaskRequest(id=self._task_id)))
            await self._read()

    async def _follow(self, stream: AsyncIterator[StreamResponse]) -> None:
        try:
            async for each in stream:
                if each.HasField("task"):
                    self._take(each.task)
                elif each.HasField("status_update"):
                    self._take_state(each.status_update.status.state)
                elif each.HasField("artifact_update"):
                    say(artifact=each.artifact_update.artifact.name)
        except Exception as error:  # noqa: BLE001  whatever it is, an application tries again
            say(cut=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason'}")

    async def _read(self) -> None:
        try:
            self._take(await self._client.get_task(GetTaskRequest(id=self._task_id)))
        except Exception as error:  # noqa: BLE001  as above
            say(cut=type(error).__name__)

    def _take(self, task: Task) -> None:
        if not self._task_id:
            self._task_id = task.id
            say(task=task.id)
        for artifact in task.artifacts:
            say(artifact=artifact.name)
        self._take_state(task.status.state)

    def _take_state(self, state: TaskState) -> None:
        if state != self._state:
            self._state = state
            say(state=TaskState.Name(state))


def say(**line: str) -> None:
    """Tell the demo."""
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


async def main() -> None:
    """Call the agent."""
    url, webhook, text = sys.argv[1:]
    client = await create_client(url, ClientConfig(streaming=True))
    await SdkCaller(client).work(webhook, text)


if __name__ == "__main__":
    asyncio.run(main())
