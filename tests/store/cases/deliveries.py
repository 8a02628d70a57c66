"""Webhooks, what is owed to them, and claims of it, as the cases about deliveries have them."""

from msgspec.structs import replace

from dragoman.model.operations import PushConfig
from dragoman.store.api import Store
from dragoman.store.outbox import Arrival, Delivery, Due, Lane, Registration, Settled
from dragoman.store.receipts import digest_of_body
from tests.store.cases.bench import (
    Bench,
    new_task,
)

HOST = "https://hooks.example:443"
CLAIM_MS = 30_000


def webhook(config_id: str = "w", *, host: str = HOST, path: str = "/in") -> Registration:
    """A configuration with all its secrets."""
    config = PushConfig(
        url=host + path,
        id=config_id,
        task_id="t1",
        token="a-token",
        scheme="Bearer",
        credentials="a-credential",
        secret="a-secret",
        events=("completed", "artifact"),
        dialect="v1",
    )
    return Registration(config=config, host=host)


def telling(seq: int, config_id: str = "w", *, kept: bool = False, name: str = "") -> Delivery:
    """A delivery that tells of the event `seq`."""
    return Delivery(
        id=name or f"{config_id}-{seq}",
        config_id=config_id,
        seq=seq,
        kept=kept,
        body=b"\x00body %d" % seq,
        traceparent="00-trace-span-01" if kept else None,
        part=2 if kept else 0,
    )


async def claimed(bench: Bench, store: Store, lane: Lane = Lane.UNKNOWN, *, limit: int = 10, **more: int) -> list[Due]:
    """The deliveries that a claim takes now."""
    now = bench.clock.ms
    return list(await store.outbox.claim(lane, now, now + CLAIM_MS, limit, more.get("per_host", 10)))


async def any_claimed(bench: Bench, store: Store) -> list[str]:
    """The ids of what is claimed now, in any lane."""
    return [due.delivery.id for lane in Lane for due in await claimed(bench, store, lane)]


def told(dues: list[Due]) -> list[str]:
    """The ids of deliveries."""
    return [due.delivery.id for due in dues]


async def pushed_task(store: Store, task_id: str = "t1", *seqs: int, host: str = HOST) -> None:
    """A task with one webhook, to which these are owed."""
    new = replace(new_task(task_id), push=webhook(host=host), deliveries=tuple(map(telling, seqs)))
    await store.create(new)


SHOWN = "https://hooks.example/in"


def arrival(due: Due, at_ms: int) -> Arrival:
    """The arrival of a delivery, answered with 202 after 12 ms."""
    body = digest_of_body(due.delivery.body)
    return Arrival(number=due.number, at_ms=at_ms, status=202, took_ms=12, url=SHOWN, digest=body)


def arrived(due: Due, at_ms: int) -> Settled:
    """The outcome of a call that leaves a receipt."""
    return Settled(number=due.number, outcome="delivered", arrivals=(arrival(due, at_ms),))
