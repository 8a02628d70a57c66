"""Usage: what principals have used, added up by day, owner, agent and model.

Invariant: the end of a task is counted in the transaction that writes it, so that each end counts once, whatever is
repeated, and nothing is lost when old tasks are deleted. A sum of tokens that would exceed TOKENS_MAX stays there.
"""

from typing import Protocol

from msgspec import Struct

from dragoman.model.message import Role
from dragoman.model.task import ModelUsage, Record, Usage

DAY_MS = 86_400_000


class Used(Struct, frozen=True):
    """The usage of one model by one run. Only the first `Used` of a run counts the run, its messages and its time.

    `tasks` is 0 for a direct answer, which leaves no task. `reported` is 1 if the agent said how many tokens it used.
    `duration_ms` is from the first message to the end. `model` is empty if the agent named none.
    """

    model: str = ""
    runs: int = 0
    tasks: int = 0
    messages: int = 0
    reported: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    duration_ms: int = 0


class AnswerUsage(Struct, frozen=True):
    """The usage of a direct answer's run, and when it ended, in milliseconds since the epoch."""

    owner: str
    agent: str
    ended_ms: int
    used: tuple[Used, ...]


class UsageDay(Used, frozen=True, kw_only=True):
    """The usage of all runs that ended in a `day`, by owner, agent and model. Days count from 1970, in UTC."""

    day: int
    owner: str
    agent: str


class UsageBook(Protocol):
    """The stored usage."""

    async def days(self, first: int, last: int) -> tuple[UsageDay, ...]:
        """Return the usage from the day `first` to the day `last`, both included, in no particular order."""
        ...

    def gather(self, usage: AnswerUsage) -> None:
        """Count an answer that is stored nowhere, with others of the same moment, within half a second.

        A crash before then loses it. Closing the store does not.
        """
        ...

    async def tokens(self, owner: str, day: int) -> int:
        """How many tokens the runs of an owner that ended in a day have used."""
        ...

    async def sweep(self, before: int) -> int:
        """Delete some of the oldest sums of the days before the day `before`. Returns how many; 0: there are no more.

        Raises StoreError.
        """
        ...


def used_by_task(record: Record) -> tuple[Used, ...]:
    """Return the usage of a task that has ended."""
    history, duration_ms = record.history, record.duration_ms or 0
    messages = 1 if len(history) == 1 else sum(message.role is Role.USER for message in history)
    if record.usage is None:
        return (Used("", 1, 1, messages, duration_ms=duration_ms),)
    return _used(record.usage, 1, messages, duration_ms)


def used_by_answer(usage: Usage | None, duration_ms: int) -> tuple[Used, ...]:
    """Return the usage of a direct answer."""
    return _used(usage, 0, 1, duration_ms)


def _used(usage: Usage | None, tasks: int, messages: int, duration_ms: int) -> tuple[Used, ...]:
    if usage is None or not (usage.total_tokens or usage.input_tokens or usage.output_tokens):
        return (Used("", 1, tasks, messages, duration_ms=duration_ms),)
    models = usage.models
    unnamed = ModelUsage(
        "",
        max(0, usage.input_tokens - sum(each.input_tokens for each in models)),
        max(0, usage.output_tokens - sum(each.output_tokens for each in models)),
        max(0, usage.total_tokens - sum(each.total_tokens for each in models)),
    )
    if unnamed != ModelUsage(""):
        models = (*models, unnamed)
    return tuple(
        Used(
            each.model,
            *((0, 0, 0, 0) if place else (1, tasks, messages, 1)),
            each.input_tokens,
            each.output_tokens,
            each.total_tokens,
            0 if place else duration_ms,
        )
        for place, each in enumerate(models)
    )
