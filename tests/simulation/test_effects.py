"""Effects that get lost: each kind, and all of them. Everything still happens, within two `claim_s`."""

import gc
from typing import get_args

import pytest
from msgspec.structs import replace

from dragoman.engine.effects import Effect
from tests.simulation.mutations import lose
from tests.simulation.test_simulation import report
from tests.simulation.world import World, simulate
from tests.soak import times

SEEDS = times(60, 2_000)

KINDS: tuple[type[Effect], ...] = get_args(Effect)


@pytest.mark.parametrize("lost", [*((kind,) for kind in KINDS), KINDS], ids=[*(k.__name__ for k in KINDS), "all"])
def test_what_a_lost_effect_was_for_happens_within_two_claims(lost: tuple[type[Effect], ...]) -> None:
    def change(world: World) -> None:
        world.terms = replace(world.terms, soon_s=2 * world.terms.claim_s)
        lose(world, lost)

    reports: list[str] = []
    for seed in range(1, SEEDS + 1):
        outcome = simulate(seed, change)
        if outcome.wrong:
            reports.append(report(outcome, whole=not reports))
        if seed % 20 == 0:
            gc.collect()
    assert not reports, "\n".join(reports)
