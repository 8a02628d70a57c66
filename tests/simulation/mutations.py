"""Bugs to put in on purpose, so that it shows whether the simulation finds them.

Invariant: each breaks one rule of docs/architecture.md, at the place where the rule is kept, and nothing else.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from dragoman.engine.task_log import Page
from dragoman.model.ids import new_write
from dragoman.model.task import INTERRUPTED
from dragoman.store.api import Append
from dragoman.testing.buses import HubBus
from tests.simulation.database import EVENT_BYTES
from tests.simulation.store import SimulatedStore
from tests.simulation.world import World


def ignore_the_epoch(world: World) -> None:
    """The store lets a run write whose lease somebody else has."""
    world.database.guard.ignores_epoch = True


def take_over_a_lease_that_is_alive(world: World) -> None:
    """A claim takes tasks whose holder is alive, too."""
    world.database.guard.claims_from_the_living = True


def renew_an_expired_heartbeat(world: World) -> None:
    """A replica that was dead for a while comes to life again."""
    world.database.guard.renews_the_expired = True


def publish_before_commit(world: World) -> None:
    """The events of a write go to the other replicas before the store has them."""

    def alter(store: SimulatedStore, bus: HubBus) -> None:
        def tell(append: Append) -> Append:
            events, first = append.events, append.read_seq + 1
            if events:
                page = Page(first, events, append.status_ms, EVENT_BYTES * len(events), append.epoch)
                bus.publish(append.task_id, first + len(events) - 1, msgspec.msgpack.encode(page))
            return append

        store.alter = tell

    _alter_all(world, alter)


def repeat_an_unknown_write_without_its_id(world: World) -> None:
    """A write whose outcome is unknown is sent again as if it were another one."""

    def alter(store: SimulatedStore, bus: HubBus) -> None:
        sent: set[int | None] = set()

        def rename(append: Append) -> Append:
            if append.write in sent:
                return replace(append, write=new_write())
            sent.add(append.write)
            return append

        store.alter = rename

    _alter_all(world, alter)


def let_a_question_overtake_an_answer(world: World) -> None:
    """A question is written whatever its run has not read yet."""

    def alter(store: SimulatedStore, bus: HubBus) -> None:
        def hasten(append: Append) -> Append:
            if append.epoch is not None and append.state in INTERRUPTED:
                return replace(append, expected_seq=None, snapshot=None)
            return append

        store.alter = hasten

    _alter_all(world, alter)


def _alter_all(world: World, alter: Callable[[SimulatedStore, HubBus], None]) -> None:
    for place in world.places:
        place.alter = alter


MUTATIONS: Mapping[str, Callable[[World], None]] = {
    mutation.__name__: mutation
    for mutation in (
        ignore_the_epoch,
        publish_before_commit,
        take_over_a_lease_that_is_alive,
        renew_an_expired_heartbeat,
        repeat_an_unknown_write_without_its_id,
        let_a_question_overtake_an_answer,
    )
}
"""All mutations by name."""
