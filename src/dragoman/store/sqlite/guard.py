"""Guard: the conditions of an append, checked against the standing of a task's row.

Invariant: pure, with the same conditions as the SQL statement, which decides. This module predicts what the statement
lets through, and explains a refusal.
"""

from dragoman.store.api import Fenced, Moved, Refused, TaskEnded
from dragoman.store.sqlite.codec import TERMINAL_FROM
from dragoman.store.sqlite.tables import Standing
from dragoman.store.sqlite.writes import Addition


def extends(add: Addition, standing: Standing) -> bool:
    """Whether `add` changes neither the state, nor its time, nor the lease of the task."""
    same = add.state == standing[3] and add.status_ms == standing[7]
    return same and add.holder is None and not add.ends_lease


def may_append(add: Addition, standing: Standing) -> bool:
    """Whether the guard will probably let `add` through."""
    _, _, _, state, seq, epoch, leased, _ = standing
    return (
        state < TERMINAL_FROM
        and (add.epoch is None or (add.epoch == epoch and bool(leased)))
        and (add.expected_seq is None or add.expected_seq == seq)
    )


def refusal(add: Addition, standing: Standing) -> Refused:
    """Why the guard of `add` refused the task. A permanent reason comes first."""
    _, _, _, state, seq, epoch, leased, _ = standing
    if state >= TERMINAL_FROM:
        return TaskEnded(add.id)
    if add.epoch is not None and not (leased and add.epoch == epoch):
        return Fenced(f"{add.id}: epoch {add.epoch}, the task has {epoch if leased else 'no lease'}")
    return Moved(f"{add.id}: expected seq {add.expected_seq}, the task is at {seq}")
