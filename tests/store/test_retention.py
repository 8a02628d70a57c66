"""The sizes of a sweep's batches, and the place to which the sweep of PostgreSQL has come."""

from dragoman.store.postgres.sweep import Batch, SweepFront
from dragoman.store.retention import BatchSize


def test_batches_grow_while_more_is_left_and_shrink_when_they_take_long() -> None:
    size = BatchSize(50, 300, 1.0)
    limits = []
    for took_s, full in ((0.1, False), (0.1, True), (0.6, True), (0.1, True), (0.1, True), (1.1, True), (9, True)):
        size.note(took_s, full=full)
        limits.append(size.limit)
    assert limits == [50, 100, 100, 200, 300, 150, 75]
    size.note(9, full=False)
    assert size.limit == 50


class Rows:
    """Rows by their times, and those that somebody holds, which a batch leaves."""

    def __init__(self, *times_ms: int) -> None:
        self.left = list(times_ms)
        self.held: set[int] = set()
        self.asked: list[tuple[int, int]] = []

    async def delete(self, since_ms: int, limit: int) -> Batch:
        self.asked.append((since_ms, limit))
        gone = [at_ms for at_ms in self.left if at_ms >= since_ms and at_ms not in self.held][:limit]
        self.left = [at_ms for at_ms in self.left if at_ms not in gone]
        return len(gone), max(gone, default=None), 3 * len(gone)


async def test_a_batch_passes_nothing_that_those_before_it_deleted() -> None:
    front, rows = SweepFront(2, 2), Rows(1, 2, 3, 4, 5)
    assert [await front.delete(rows.delete) for _ in range(3)] == [(6, True), (6, True), (3, False)]
    assert rows.asked == [(0, 2), (2, 2), (4, 2), (0, 1)]
    assert await front.delete(rows.delete) == (0, False)


async def test_what_was_held_is_deleted_by_the_batch_that_finds_no_more() -> None:
    front, rows = SweepFront(2, 2), Rows(1, 2, 3, 4)
    rows.held.add(1)
    assert await front.delete(rows.delete) == (6, True)
    rows.held.clear()
    assert await front.delete(rows.delete) == (6, True)
    assert rows.left == []
    assert rows.asked[1:] == [(3, 2), (0, 1)]
