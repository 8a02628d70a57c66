"""Settling: what the outcome of an attempt changes about a delivery, its webhook and its host.

Invariant: pure functions. Their caller has read the standing in the same transaction, in which nobody else
changes the deliveries of the webhook.
"""

from msgspec import Struct

from dragoman.store.outbox import Lane, Settled


class DeliveryStanding(Struct, frozen=True, array_like=True):
    """The standing of a delivery: `claimed` is the one in flight to its webhook, `other` the oldest other pending one.

    Sizes are those of the bodies.
    """

    number: int
    config: int
    claimed: int | None
    size: int
    host: int
    lane: int
    other: int | None
    other_size: int


class Settling(Struct, frozen=True):
    """The changes that the outcome of an attempt makes. `lane` is that of the host from now on.

    `stops`: the webhook and its deliveries. `arrived`: the delivery is deleted. `failed`: it stays, dead or not.
    `frees`: the webhook is not in flight any more, and due at `due_ms` with a body of `size` bytes; `retries` says that
    this has failed before. `merges`: the deliveries behind are merged. `measures`: the webhook has another oldest
    delivery now.
    """

    lane: Lane
    stops: bool = False
    arrived: bool = False
    failed: bool = False
    frees: bool = False
    due_ms: int | None = None
    size: int = 0
    retries: bool = False
    merges: bool = False
    measures: bool = False


def resolve(standing: DeliveryStanding, one: Settled, lane: Lane, now_ms: int) -> Settling | None:
    """The changes that the outcome `one` makes. None if its claim ran out and the next claimant settled it."""
    number, other = one.number, standing.other
    claimed = number if standing.claimed in one.before else standing.claimed
    if claimed != number and one.outcome in ("retry", "dead"):
        return None
    lane = _lane(one, lane)
    match one.outcome:
        case "gone":
            return Settling(lane, stops=True)
        case "delivered":
            if claimed != number and (claimed is not None or (other is not None and other < number)):
                return Settling(lane, arrived=True, measures=True)  # another is in flight, or waits for its turn
            due_ms = None if other is None else now_ms
            return Settling(lane, arrived=True, frees=True, due_ms=due_ms, size=standing.other_size)
        case "retry" if other is None or other > number:
            return Settling(
                lane,
                failed=True,
                frees=True,
                due_ms=one.due_ms,
                size=standing.size,
                retries=True,
                merges=other is not None,
            )
        case "retry":
            return Settling(lane, failed=True, frees=True, due_ms=now_ms, size=standing.other_size)
        case "dead":
            due_ms = None if other is None else now_ms
            return Settling(lane, failed=True, frees=True, due_ms=due_ms, size=standing.other_size)


def _lane(settled: Settled, lane: Lane) -> Lane:
    """The lane of the host after this outcome."""
    if settled.outcome in ("delivered", "gone"):
        return Lane.HEALTHY
    if not settled.reached:
        return Lane.FAILING
    return Lane.HEALTHY if lane is Lane.UNKNOWN else lane
