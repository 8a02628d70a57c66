"""A fake of what turns steps into webhook calls, and a receiver that takes all that is owed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from dragoman.engine.announcements import PutOff, WebhookStep
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import new_id
from dragoman.model.lifecycle import SPELLED
from dragoman.model.operations import PushConfig
from dragoman.model.task import TaskHead
from dragoman.store.api import StoreFull
from dragoman.store.outbox import Delivery, Lane, Registration, Settled
from tests.engine.house import House

REFUSED = "http://10.0.0.1/"


class Telling:
    """Takes every URL but one, tells everything, and counts what is asked of it."""

    def __init__(self) -> None:
        self.checked: list[tuple[str, str]] = []
        self.steps: list[WebhookStep] = []
        self.wakes = 0
        self.held: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.broken = False
        self.refusing = False
        """Takes no URL at all: its host has moved to an address that may not be called."""

    async def registration(self, config: PushConfig, field: str) -> Registration:
        self.checked.append((field, config.url))
        self.asked.set()
        if self.held is not None:
            await self.held.wait()
        if config.url == REFUSED or self.refusing:
            raise InvalidParams(field, f"{config.url} may not be called from here")
        return Registration(config=config, host="https://hooks.example:443")

    def deliveries(
        self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[WebhookStep], put_off: PutOff
    ) -> tuple[tuple[Delivery, ...], PutOff]:
        if self.broken:
            raise LookupError("a fault of ours")
        self.steps += steps
        deliveries = tuple(
            Delivery(
                id=new_id(),
                config_id=config.id,
                seq=step.seq,
                kept=step.stands().terminal,
                body=msgspec.json.encode(_body(config, step)),
            )
            for step in steps
            for config in configs
        )
        return deliveries, put_off

    def wake(self) -> None:
        self.wakes += 1


def _body(config: PushConfig, step: WebhookStep) -> dict[str, Any]:
    record = step.stands()
    assert record.state is step.state
    assert record.seq == step.seq
    return {
        "to": config.url,
        "seq": step.seq,
        "state": SPELLED[record.state],
        "kind": "none" if step.event is None else type(step.event).__name__,
        "whole": list(step.whole),
        "texts": {each.artifact_id: "".join(part.text or "" for part in each.parts) for each in record.artifacts},
    }


class FullOutbox:
    """The outbox of a store whose disk is full when a webhook is to be kept."""

    def __init__(self, outbox: Any) -> None:
        self._outbox = outbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbox, name)

    def register(self, *_: object) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, StoreFull("no space"))
        return future


async def calls(h: House) -> list[dict[str, Any]]:
    """All that is owed, taken from the outbox in the order in which it goes out."""
    found: list[dict[str, Any]] = []
    now_ms, outbox = h.clock.ms, h.store.outbox
    while True:
        due = [each for lane in Lane for each in await outbox.claim(lane, now_ms, now_ms + 60_000, 100, 100)]
        if not due:
            return found
        for each in due:
            found.append(msgspec.json.decode(each.delivery.body))
            assert (found[-1]["to"], found[-1]["seq"]) == (each.config.url, each.delivery.seq)
            await outbox.settle(Settled(number=each.number, outcome="delivered"))


def told(bodies: list[dict[str, Any]], url: str = "") -> list[tuple[str, str]]:
    """The calls to a webhook (none named: all), as kind and state."""
    return [(each["kind"], each["state"]) for each in bodies if url in ("", each["to"])]
