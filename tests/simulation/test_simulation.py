"""Simulations: several replicas under faults, by seed. A seed that fails can be run alone, and prints its history.

Invariant: the same seed gives the same history, so that a failure can be looked at.
"""

import gc
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.simulation.history import trace
from tests.simulation.world import Outcome, simulate
from tests.soak import SOAK, times

SEEDS = times(1_000, 100_000)

SLICES = 20

ALONE = "to run it alone: .venv/bin/python -m tests.simulation {}"

ROOT = Path(__file__).parents[2]


def go_wrong(first: int, count: int) -> list[str]:
    """Run some seeds. Returns the reports of those that go wrong, the first one with its history."""
    reports: list[str] = []
    for seed in range(first, first + count):
        outcome = simulate(seed)
        if outcome.wrong:
            reports.append(report(outcome, whole=not reports))
        if seed % 20 == 0:
            gc.collect()
    return reports


def report(outcome: Outcome, *, whole: bool = True) -> str:
    """The faults, and how to run the seed alone."""
    what = outcome.report() if whole else "\n".join((f"seed {outcome.seed}:", *outcome.wrong))
    return f"{what}\n{ALONE.format(outcome.seed)}\n"


@pytest.mark.skipif(SOAK, reason="the soak runs more of them")
@pytest.mark.parametrize("part", range(SLICES))
def test_whatever_happens_the_invariants_hold(part: int) -> None:
    count = SEEDS // SLICES
    reports = go_wrong(1 + part * count, count)
    assert not reports, "\n".join(reports)


@pytest.mark.slow
@pytest.mark.skipif(not SOAK, reason="takes an hour")
def test_whatever_happens_long_enough_the_invariants_hold() -> None:
    count = 500
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        reports = [
            report for part in pool.map(go_wrong, range(1, SEEDS, count), [count] * (SEEDS // count)) for report in part
        ]
    assert not reports, "\n".join(reports[:5])


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    show = "import sys; from tests.simulation.world import simulate; from tests.simulation.history import trace; "
    show += "print([trace(simulate(seed).history) for seed in range(1, 6)])"
    ours = str([trace(simulate(seed).history) for seed in range(1, 6)])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        theirs = subprocess.run(
            [sys.executable, "-c", show], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert theirs.stdout.strip() == ours
