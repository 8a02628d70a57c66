"""The webhooks of a remote agent's tasks.

Invariant: secrets go out with `set` and are not kept.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.client.endpoint import AgentEndpoint
from dragoman.model.errors import InvalidAgentResponse
from dragoman.model.operations import (
    CreatePushConfig,
    DeletePushConfig,
    GetPushConfig,
    ListPushConfigs,
    PushConfig,
)


class TaskWebhooks:
    """The webhooks of a remote agent's tasks (A2A 1.0 §3.1.7 to §3.1.10)."""

    def __init__(self, endpoint: AgentEndpoint) -> None:
        self._endpoint = endpoint

    async def set(
        self,
        task_id: str,
        url: str | PushConfig,
        *,
        id: str = "",  # noqa: A002  as everywhere in A2A
        token: str | None = None,
        scheme: str | None = None,
        credentials: str | None = None,
        secret: str | None = None,
        events: Sequence[str] = (),
    ) -> PushConfig:
        """Register a webhook. The agent shows `scheme` and `credentials` to it; see PushConfig.

        A PushConfig may take the place of the URL and of everything else. Raises TypeError if both are given.
        """
        said = PushConfig(
            url="",
            id=id,
            task_id=task_id,
            token=token,
            scheme=scheme,
            credentials=credentials,
            secret=secret,
            events=tuple(events),
        )
        if isinstance(url, str):
            config = replace(said, url=url)
        elif said == PushConfig(url="", task_id=task_id):
            config = replace(url, task_id=task_id)
        else:
            raise TypeError("a PushConfig takes no further arguments: put them into it")
        return await self._endpoint.read(CreatePushConfig(config=config), PushConfig, "a push configuration")

    async def get(self, task_id: str, id: str = "") -> PushConfig:  # noqa: A002
        """Return one webhook; without an id the oldest, in dialects where the id is optional."""
        return await self._endpoint.read(GetPushConfig(task_id=task_id, id=id), PushConfig, "a push configuration")

    async def list(self, task_id: str) -> tuple[PushConfig, ...]:
        """Return all webhooks of a task."""
        answer = await self._endpoint.ask(ListPushConfigs(task_id=task_id))
        if answer is None:
            return ()
        if not isinstance(answer, tuple):
            raise InvalidAgentResponse(f"expected a list of push configurations, got {type(answer).__name__}")
        return answer

    async def delete(self, task_id: str, id: str = "") -> None:  # noqa: A002
        """Delete a webhook; without an id all of the task's, in dialects where the id is optional."""
        await self._endpoint.ask(DeletePushConfig(task_id=task_id, id=id))
