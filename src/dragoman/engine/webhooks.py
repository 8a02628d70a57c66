"""Webhooks: the operations on a task's push notification configurations (A2A 1.0 §3.1.7 to §3.1.10).

Invariant: only the owner of a task learns that it has webhooks (invariant 9). Credentials and secrets are never
returned; the token is returned to its owner alone.
"""

import asyncio
from functools import partial
from typing import assert_never

from msgspec.structs import replace

from dragoman.engine.announcements import Announcer, Audience, joined
from dragoman.engine.leases import TaskLeases
from dragoman.engine.log import Log
from dragoman.engine.rights import Right
from dragoman.engine.rules import AddWebhook, Decision
from dragoman.engine.tasks import Tasks
from dragoman.model.errors import InvalidParams, TaskNotFound
from dragoman.model.operations import (
    Call,
    CreatePushConfig,
    DeletePushConfig,
    GetPushConfig,
    ListPushConfigs,
    PushConfig,
)
from dragoman.store.api import Store, Unknown
from dragoman.store.outbox import Registration

ID_MAX = 256
"""Most characters in the id that a caller gives a webhook."""

HIDDEN = "hidden"
"""Stands in answers for a secret that is set: a dialect may show that there is one, but not its value."""

PushOperation = CreatePushConfig | GetPushConfig | ListPushConfigs | DeletePushConfig


class WebhookOperations:
    """Callers' operations on the webhooks of their tasks."""

    def __init__(self, store: Store, tasks: Tasks, leases: TaskLeases, announcer: Announcer) -> None:
        self._store = store
        self._tasks = tasks
        self._leases = leases
        self._announcer = announcer

    async def answer(self, call: Call, operation: PushOperation) -> PushConfig | tuple[PushConfig, ...] | None:
        """Do what the caller asks for. Raises TaskNotFound for a task that is not the caller's, and InvalidParams."""
        match operation:
            case CreatePushConfig(config=config):
                return shown(await self._create(call, config))
            case GetPushConfig(task_id=task_id, id=config_id):
                return await self._get(call, task_id, config_id)
            case ListPushConfigs(task_id=task_id, page_token=token):
                if token:
                    raise InvalidParams("pageToken", "not one that this server gave: leave it out, all are on one page")
                return tuple(shown(config) for config in await self._configs(call, task_id))
            case DeletePushConfig(task_id=task_id, id=config_id):
                await self._delete(call, task_id, config_id)
                return None
            case _:
                assert_never(operation)

    async def registration(self, call: Call, config: PushConfig, task_id: str, place: str) -> Registration:
        """The configuration as it is stored for a task, its address checked. `place` is its path in the request.

        One without an id gets the id of the task, as on the official servers, so that it replaces the one before.
        Raises InvalidParams.
        """
        if len(config.id) > ID_MAX:
            raise InvalidParams(f"{place}id", f"must have at most {ID_MAX} characters")
        whole = replace(config, id=config.id or task_id, task_id=task_id, dialect=call.dialect)
        return replace(await self._announcer.registration(whole, f"{place}url"), key=call.principal.key)

    def audience(self, task: Log) -> Audience:
        """The webhooks of a task in memory."""
        audience = task.followers.audience
        return task.followers.announce_to(Audience(self._announcer)) if audience is None else audience

    async def _create(self, call: Call, config: PushConfig) -> PushConfig:
        task = await self._tasks.pin(call, config.task_id, Right.OWN)
        try:
            registration = await self.registration(call, config, task.head.id, "")
            if await task.writes.append(task, partial(self._decide, registration), patient=False) is None:
                async with task.writes.turn(task):  # it has ended: nothing is appended any more
                    await self._register(task, self.audience(task), registration)
            return registration.config
        except Unknown as error:  # the sweep has deleted it
            raise TaskNotFound(config.task_id) from error
        finally:
            task.unpin()

    def number(self, task: Log, registration: Registration) -> int:
        """How many webhooks a task has with this one, by an id of its own or in place of one."""
        return len(joined(self.audience(task).configs, registration.config))

    def _decide(self, registration: Registration, task: Log) -> Decision | None:
        """The decision of the rules on a new webhook, which gets the task as it stands; None if the task has ended."""
        return self._leases.decide(AddWebhook(registration, self.number(task, registration), "id"), task)

    async def _register(self, task: Log, audience: Audience, registration: Registration) -> None:
        """Write the webhook of an ended task, with a delivery of its end, even if the caller leaves meanwhile."""
        config = registration.config
        self._decide(registration, task)  # others may have registered theirs
        deliveries = audience.standing(task.head, config, task.record())
        written = self._store.outbox.register(task.head.id, registration, deliveries)

        def landed(done: "asyncio.Future[None]") -> None:
            if not done.cancelled() and done.exception() is None:
                audience.join(config)
                if deliveries:
                    audience.wake()

        written.add_done_callback(landed)
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            await asyncio.wait((written,))  # the webhooks of later events depend on it
            raise

    async def _configs(self, call: Call, task_id: str) -> tuple[PushConfig, ...]:
        await self._tasks.find(call, task_id, Right.OWN)
        return await self._store.outbox.configs(task_id)

    async def _get(self, call: Call, task_id: str, config_id: str) -> PushConfig | None:
        """The configuration with this id, or the oldest where the caller may leave the id out."""
        for config in await self._configs(call, task_id):
            if config_id in ("", config.id):
                return shown(config)
        if call.manners.absent_webhook_is_none:
            return None
        raise TaskNotFound(task_id)  # A2A 1.0 §3.1.8

    async def _delete(self, call: Call, task_id: str, config_id: str) -> None:
        """Delete the configuration, or all where the caller may leave the id out. Idempotent (A2A 1.0 §3.1.10)."""
        task = await self._tasks.pin(call, task_id, Right.OWN)
        try:
            for config in await self._store.outbox.configs(task_id):
                if config_id in ("", config.id):
                    audience = task.followers.audience
                    told = () if audience is None else tuple(each for each in audience.configs if each.id == config.id)
                    await self._store.outbox.remove(task_id, config.id)
                    if audience is not None:
                        audience.leave(told)
                    task.change_webhooks(task.row.webhooks_version + 1)
        finally:
            task.unpin()


def shown(config: PushConfig) -> PushConfig:
    """A configuration for its owner to see.

    The token is a setting among others (A2A 1.0 §3.1.8). Credentials and the secret are write-only.
    """
    return replace(config, credentials=None, secret=None if config.secret is None else HIDDEN)
