"""When it is said that somebody works on a task: as its run begins, with the first word of its agent, or between.

Invariant: it is said before anything else that the run says.
"""

from dragoman.engine.api import Runner
from dragoman.model.task import TaskState


def waits(runner: Runner) -> bool:
    """Whether a task of the runner is `submitted` until its run says `working`; `waits` is an attribute few have."""
    return getattr(runner, "waits", False)


def speaks_soon(runner: Runner) -> bool:
    """Whether `working` is put off for moments, to be written with the agent's first word; an attribute few have.

    It spares a commit for each task of an agent elsewhere, whose answer is mostly on its way when ours would be told.
    """
    return getattr(runner, "speaks_soon", False)


def may_refuse(runner: Runner) -> bool:
    """Whether the runner may find that nobody takes a task on at present; an attribute few have."""
    return getattr(runner, "may_refuse", False)


def leased_as(runner: Runner | None, state: TaskState) -> TaskState:
    """The state of a task, which is in `state`, as a run of the runner begins anew."""
    untaken = state is TaskState.SUBMITTED and runner is not None and waits(runner)
    return TaskState.SUBMITTED if untaken else TaskState.WORKING
