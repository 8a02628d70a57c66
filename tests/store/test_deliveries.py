"""The changes that the outcome of an attempt to deliver makes: every row of the table."""

import pytest

from dragoman.store.deliveries import DeliveryFate, DeliveryStanding, Settling, resolve
from dragoman.store.outbox import Lane, Settled

NOW, LATER = 100, 500
SIZE, OTHER_SIZE = 10, 20
HEALTHY, UNKNOWN, FAILING = Lane.HEALTHY, Lane.UNKNOWN, Lane.FAILING


def standing(claimed: int | None = 5, other: int | None = None) -> DeliveryStanding:
    """Delivery 5, in flight unless said otherwise."""
    return DeliveryStanding(5, 1, claimed, SIZE, 1, int(UNKNOWN), other, OTHER_SIZE)


def delivered(due_ms: int | None, size: int = OTHER_SIZE) -> Settling:
    return Settling(HEALTHY, DeliveryFate.ARRIVED, frees=True, due_ms=due_ms, size=size)


def failed(due_ms: int | None, size: int, *, retries: bool = False, merges: bool = False) -> Settling:
    fate = DeliveryFate.PENDING
    return Settling(HEALTHY, fate, frees=True, due_ms=due_ms, size=size, retries=retries, merges=merges)


def dead(due_ms: int | None) -> Settling:
    return Settling(HEALTHY, DeliveryFate.DEAD, frees=True, due_ms=due_ms, size=OTHER_SIZE)


@pytest.mark.parametrize(
    ("outcome", "before", "wanted"),
    [
        ("delivered", standing(), delivered(None)),
        ("delivered", standing(other=6), delivered(NOW)),
        ("delivered", standing(claimed=None, other=6), delivered(NOW)),
        ("delivered", standing(claimed=None, other=4), Settling(HEALTHY, DeliveryFate.ARRIVED, measures=True)),
        ("delivered", standing(claimed=6, other=6), Settling(HEALTHY, DeliveryFate.ARRIVED, measures=True)),
        ("retry", standing(), failed(LATER, SIZE, retries=True)),
        ("retry", standing(other=6), failed(LATER, SIZE, retries=True, merges=True)),
        ("retry", standing(other=4), failed(NOW, OTHER_SIZE)),
        ("retry", standing(claimed=6, other=6), None),
        ("dead", standing(), dead(None)),
        ("dead", standing(other=6), dead(NOW)),
        ("dead", standing(claimed=None, other=6), None),
        ("gone", standing(claimed=6, other=6), Settling(HEALTHY, DeliveryFate.STOPPED)),
    ],
)
def test_an_outcome_changes_what_the_table_says(
    outcome: str, before: DeliveryStanding, wanted: Settling | None
) -> None:
    settled = Settled(number=5, outcome=outcome, due_ms=LATER)  # type: ignore[arg-type]
    assert resolve(before, settled, UNKNOWN, NOW) == wanted


@pytest.mark.parametrize(
    ("outcome", "reached", "lane", "wanted"),
    [
        ("delivered", True, FAILING, HEALTHY),
        ("gone", True, FAILING, HEALTHY),
        ("retry", True, UNKNOWN, HEALTHY),
        ("retry", True, FAILING, FAILING),
        ("retry", False, HEALTHY, FAILING),
        ("dead", False, UNKNOWN, FAILING),
    ],
)
def test_an_outcome_moves_the_host_to_a_lane(outcome: str, reached: bool, lane: Lane, wanted: Lane) -> None:
    settled = Settled(number=5, outcome=outcome, due_ms=LATER, reached=reached)  # type: ignore[arg-type]
    found = resolve(standing(), settled, lane, NOW)
    assert found is not None
    assert found.lane is wanted


def test_a_delivery_is_in_flight_if_one_before_it_that_arrived_was() -> None:
    settled = Settled(number=5, outcome="retry", due_ms=LATER, before=(3, 4))
    assert resolve(standing(claimed=3, other=6), settled, UNKNOWN, NOW) == failed(
        LATER, SIZE, retries=True, merges=True
    )
