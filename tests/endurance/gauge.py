"""What a long run is judged by: samples of its server in, figures and faults out. Pure.

Invariant: a window lies within one life of the server, so its processor time is a difference of two counters.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from statistics import mean
from typing import NamedTuple

from tests.drills.record import Executed

KEPT_MIN = 0.95
"""The part of a fresh server's turns per second of processor time that the old one must have in the last window. A
server's turn costs more while others share the processor's caches, up to twice as much, which no fixed piece of work
shows: only a second server, in the same minutes, does.
"""

GROWTH_MAX = 1.05
SPARE_BYTES, SPARE_FILES = 4 << 20, 8
"""Memory and open files may differ by this much more between two windows: chance."""


class Sample(NamedTuple):
    """The state at `at_s` after the start. `life` counts the server's starts: `cpu_s`, `memory_bytes` and open `files`
    are those of this life. `turns` is how many the callers have finished."""

    at_s: float
    life: int
    cpu_s: float
    memory_bytes: int
    files: int
    turns: int


class Window(NamedTuple):
    """The means of some time. `per_cpu_s` is turns per second of processor time."""

    per_cpu_s: float
    memory_bytes: float
    files: float


class Verdict(NamedTuple):
    """The figures of a run, and what is wrong with it."""

    figures: tuple[str, ...]
    faults: tuple[str, ...]


def measure(samples: Sequence[Sample], from_s: float, to_s: float) -> Window:
    """The window between two times. Raises ValueError if it has fewer than two samples of one life."""
    inside = [sample for sample in samples if from_s <= sample.at_s <= to_s]
    if len(inside) < 2 or inside[0].life != inside[-1].life:
        raise ValueError(f"from {from_s:.0f} s to {to_s:.0f} s there is no single life of the server")
    first, last = inside[0], inside[-1]
    per_cpu_s = (last.turns - first.turns) / (last.cpu_s - first.cpu_s)
    memory, files = (mean(map(attrgetter(name), inside)) for name in ("memory_bytes", "files"))
    return Window(per_cpu_s, memory, files)


def judge(
    samples: Sequence[Sample], fresh: Sequence[Sample], lasts_s: float, warm_s: float, settled_s: float
) -> Verdict:
    """Compare the last sixth of a run with that of a `fresh` server: the work per processor time. Compare the sixth
    before the fresh one began, which took `warm_s` to warm up, with the one from `settled_s` on, in the same life:
    memory and open files. The first sixth, from `warm_s` on, is only told."""
    sixth_s = lasts_s / 6
    alone_s = lasts_s - sixth_s - warm_s
    try:
        first, last = measure(samples, warm_s, warm_s + sixth_s), measure(samples, lasts_s - sixth_s, lasts_s)
        settled = measure(samples, settled_s, settled_s + sixth_s)
        alone = measure(samples, alone_s - sixth_s, alone_s)
        beside = measure(fresh, lasts_s - sixth_s, lasts_s)
    except ValueError as error:
        return Verdict((), (str(error),))
    kept = last.per_cpu_s / beside.per_cpu_s
    figures = (
        f"turns per second of processor time: {first.per_cpu_s:.1f} first, {last.per_cpu_s:.1f} last",
        f"those of a fresh server in the same minutes: {beside.per_cpu_s:.1f}, so {kept:.3f} are kept",
        f"memory: {settled.memory_bytes / 1e6:.1f} MB settled, {alone.memory_bytes / 1e6:.1f} MB last",
        f"open files: {settled.files:.1f} settled, {alone.files:.1f} last",
    )
    faults = (
        *((f"only {kept:.3f} of a fresh server's turns are kept",) if kept < KEPT_MIN else ()),
        *_grown("memory", settled.memory_bytes, alone.memory_bytes, SPARE_BYTES),
        *_grown("open files", settled.files, alone.files, SPARE_FILES),
    )
    return Verdict(figures, faults)


def _grown(name: str, before: float, after: float, spare: float) -> Iterator[str]:
    if after > before * GROWTH_MAX + spare:
        yield f"{name} grew from {before:.0f} to {after:.0f}"


def wrong_steps(ledger: Iterable[Executed], whole: dict[str, int], kills_ms: Sequence[float]) -> Iterator[str]:
    """Each breach: a journey that was completed has executed its steps, by the number in `whole`; a step has one key;
    and it is executed again only if the server was killed since."""
    by_step = attrgetter("task_id", "number")
    done: dict[str, set[int]] = {}
    for (task_id, number), found in groupby(sorted(ledger, key=lambda line: (*by_step(line), line.at_ms)), by_step):
        done.setdefault(task_id, set()).add(number)
        lines = list(found)
        if len({(line.key, line.lot) for line in lines}) > 1:
            yield f"task {task_id}: step {number} was executed as different ones"
        for one, again in pairwise(lines):
            if not any(one.at_ms <= kill_ms <= again.at_ms for kill_ms in kills_ms):
                yield f"task {task_id}: step {number} was executed twice, and no kill came between"
    for task_id, steps in whole.items():
        if done.get(task_id, set()) != set(range(1, steps + 1)):
            yield f"task {task_id} completed with the steps {sorted(done.get(task_id, ()))} of {steps}"
