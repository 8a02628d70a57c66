"""Rows: the values of the rows that writes insert, and the decoding of an earlier call.

Invariant: pure. The values are in the order of their statement.
"""

from dragoman.store.api import Repeat
from dragoman.store.sqlite.codec import TERMINAL_FROM, Codec
from dragoman.store.sqlite.writes import Addition, Creation


def task_row(new: Creation, task: int, scope: int) -> tuple[object, ...]:
    """The values of `add_tasks`."""
    return (
        task,
        new.id,
        scope,
        new.context,
        new.state,
        new.status_ms,
        new.events,
        int(new.holder is not None),
        None if new.state >= TERMINAL_FROM else new.holder,
        len(new.page),
        bool(new.files),
        new.head,
        new.webhook is not None,
        new.parent,
        new.deadline_ms,
    )


def addition_row(add: Addition) -> tuple[object, ...]:
    """The values of `append` and `append_together` that follow the task."""
    return (
        add.events,
        add.state,
        add.status_ms,
        add.holder is not None,
        add.holder,
        add.ends_lease,
        len(add.page),
        add.snapshot is not None,
        bool(add.files),
        add.epoch,
        add.expected_seq,
        add.read_seq,
        add.write,
    )


def extension_row(add: Addition) -> tuple[object, ...]:
    """The values of `extend_together` that follow the task."""
    return (
        add.events,
        len(add.page),
        add.snapshot is not None,
        bool(add.files),
        add.epoch,
        add.expected_seq,
        add.read_seq,
        add.write,
    )


def repeat(found: tuple[str | None, bytes, int, bytes | None], codec: Codec) -> Repeat:
    """Decode an earlier call from its row."""
    task_id, digest, seq, answer = found
    return Repeat(task_id, digest, seq, None if answer is None else codec.message(answer))
