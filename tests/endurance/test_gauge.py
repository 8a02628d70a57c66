"""How a long run is judged, by samples that are made up."""

from collections.abc import Callable

import pytest

from tests.drills.record import Executed
from tests.endurance.gauge import Sample, judge, wrong_steps

LASTS_S = 3600.0


def samples(*, per_cpu: Callable[[float], float] = lambda _: 100.0, **found: Callable[[float], float]) -> list[Sample]:
    """A run that is sampled every 10 s and is killed after 720 s and 900 s. Each fact is a function of the time."""
    made, turns, cpu_s = [], 0.0, 0.0
    for at_s in range(0, 3601, 10):
        turns, cpu_s = turns + 100, cpu_s + 100 / per_cpu(at_s)
        facts = {"memory_bytes": 50e6, "files": 40} | {name: fact(at_s) for name, fact in found.items()}
        life = (at_s >= 720) + (at_s >= 900)
        made.append(Sample(at_s=at_s, life=life, cpu_s=cpu_s, turns=round(turns), **facts))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        ({}, []),
        ({"per_cpu": lambda at_s: 100 - at_s / 900}, []),
        ({"per_cpu": lambda at_s: 100 - at_s / 450}, ["turns"]),
        ({"memory_bytes": lambda at_s: 50e6 + at_s * 1000}, []),
        ({"memory_bytes": lambda at_s: 50e6 + at_s * 10_000}, ["memory"]),
        ({"memory_bytes": lambda at_s: 90e6 if at_s < 1000 else 50e6}, []),
        ({"files": lambda at_s: 40 + at_s / 60}, ["open files"]),
    ],
)
def test_a_run_is_good_if_nothing_slows_down_or_grows(
    found: dict[str, Callable[[float], float]], faults: list[str]
) -> None:
    verdict = judge(samples(**found), samples(), LASTS_S, 60, LASTS_S / 3)
    assert len(verdict.faults) == len(faults)
    assert all(word in fault for word, fault in zip(faults, verdict.faults, strict=True))


def test_a_window_with_a_kill_in_it_is_none() -> None:
    assert "no single life" in judge(samples(), samples(), LASTS_S, 60, 600).faults[0]


def test_a_processor_that_is_slower_at_the_end_is_slower_for_the_fresh_server_too() -> None:
    slower = samples(per_cpu=lambda at_s: 80 if at_s > 2900 else 100)
    assert not judge(slower, slower[250:], LASTS_S, 60, LASTS_S / 3).faults
    assert judge(slower, samples(), LASTS_S, 60, LASTS_S / 3).faults


def step(number: int, at_ms: float, key: str = "") -> Executed:
    return Executed("t", number, "lot", key or f"k{number}", at_ms)


@pytest.mark.parametrize(
    ("ledger", "fault"),
    [
        ([step(1, 10), step(2, 20)], ""),
        ([step(1, 10), step(2, 20), step(2, 900)], ""),  # killed at 500
        ([step(1, 10), step(2, 20), step(2, 400)], "executed twice"),
        ([step(1, 10), step(2, 20), step(2, 900, "other")], "as different ones"),
        ([step(2, 20)], "with the steps [2] of 2"),
        ([], "with the steps [] of 2"),
    ],
)
def test_a_step_is_executed_again_only_if_a_kill_came_between(ledger: list[Executed], fault: str) -> None:
    found = list(wrong_steps(ledger, {"t": 2}, [500]))
    assert len(found) == bool(fault)
    assert not fault or fault in found[0]
