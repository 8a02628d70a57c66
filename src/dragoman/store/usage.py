"""Usage: what principals have used, added up by day, owner, agent, model and upstream.

Invariant: the end of a task is counted in the transaction that writes it, so that each end counts once, whatever is
repeated, and nothing is lost when old tasks are deleted. A sum of tokens that would exceed TOKENS_MAX stays there.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import astuple

from dragoman.model.message import Role
from dragoman.model.task import ModelUsage, Record, Usage
from dragoman.store.members import TeamMembers

DAY_MS = 86_400_000


SEPARATOR = "\x1f"
"""Stands between the names of a model and an upstream (ASCII's unit separator)."""


class Used(Struct, frozen=True):
    """The usage of one model by one run. Only the first `Used` of a run counts the run, its messages and its time.

    `tasks` is 0 for a direct answer, which leaves no task. `reported` is 1 if the agent said how many tokens it used.
    `duration_ms` is from the first message to the end, and `waited_ms` the part of it in which the task waited for its
    caller. `cached_tokens` are those of the `input_tokens` that a cache had. `uncertain` counts calls and reports whose
    tokens nobody knows. `model` is empty if the agent named none, `upstream` if the agent is no pool.
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
    cached_tokens: int = 0
    uncertain: int = 0
    waited_ms: int = 0
    upstream: str = ""

    @property
    def name(self) -> str:
        """The text by which a store tells sums of one day, owner and agent apart; `read_sum` reads it.

        It stands in the column `model`, whose table had no other one for a name when replicas began to write it.
        Without an upstream it is the model.
        """
        return f"{self.model.replace(SEPARATOR, ' ')}{SEPARATOR}{self.upstream}" if self.upstream else self.model

    @property
    def numbers(self) -> tuple[int, ...]:
        """All numbers, in the order of the columns of a store."""
        return astuple(self)[1:12]


def read_sum(name: str, numbers: Iterable[int], day: int, owner: str, agent: str) -> "UsageDay":
    """A sum as a store has it: the `name` and the `numbers` of a Used."""
    model, _, upstream = name.partition(SEPARATOR)
    found = dict(zip(Used.__struct_fields__[1:12], numbers, strict=True))
    return UsageDay(model=model, upstream=upstream, day=day, owner=owner, agent=agent, **found)


class AnswerUsage(Struct, frozen=True):
    """The usage of a direct answer's run, and when it ended, in milliseconds since the epoch."""

    owner: str
    agent: str
    ended_ms: int
    used: tuple[Used, ...]


class UsageDay(Used, frozen=True, kw_only=True):
    """The usage of all runs that ended in a `day`, by owner, agent, model and upstream. Days count from 1970 (UTC)."""

    day: int
    owner: str
    agent: str


class UsageBook(Protocol):
    """The stored usage."""

    async def days(self, first: int, last: int, members: TeamMembers | None = None) -> tuple[UsageDay, ...]:
        """Return the usage from the day `first` to the day `last`, both included, in no particular order.

        With `members` it is that of a team alone.
        """
        ...

    async def by_agent(self, first: int, last: int) -> tuple[UsageDay, ...]:
        """Return the same of all owners together, with an empty `owner`."""
        ...

    def gather(self, usage: AnswerUsage) -> None:
        """Count an answer that is stored nowhere, with others of the same moment, within half a second.

        A crash before then loses it. Closing the store does not.
        """
        ...

    async def tokens(self, owner: str | TeamMembers, day: int) -> int:
        """How many tokens the runs of an owner, or of all members of a team, that ended in a day have used."""
        ...

    async def sweep(self, before: int) -> int:
        """Delete some of the oldest sums of the days before the day `before`. Returns how many; 0: there are no more.

        Raises StoreError.
        """
        ...


def used_by_task(record: Record) -> tuple[Used, ...]:
    """Return the usage of a task that has ended."""
    history, duration_ms, waited_ms = record.history, record.duration_ms or 0, record.waited_ms
    messages = 1 if len(history) == 1 else sum(message.role is Role.USER for message in history)
    if waited_ms > duration_ms:
        waited_ms = duration_ms
    if record.usage is None:
        return (Used("", 1, 1, messages, 0, 0, 0, 0, duration_ms, 0, 0, waited_ms),)
    return _used(record.usage, 1, messages, duration_ms, waited_ms)


def used_by_answer(usage: Usage | None, duration_ms: int) -> tuple[Used, ...]:
    """Return the usage of a direct answer."""
    return (Used("", 1, 0, 1, duration_ms=duration_ms),) if usage is None else _used(usage, 0, 1, duration_ms, 0)


def _used(usage: Usage, tasks: int, messages: int, duration_ms: int, waited_ms: int) -> tuple[Used, ...]:
    """The usage of each model of a run, which counts with the first one that told of tokens."""
    models = usage.models
    if len(models) == 1:  # most runs have one model, or one upstream
        only = models[0]
        tokens = only.input_tokens, only.output_tokens, only.total_tokens
        told = usage.input_tokens, usage.output_tokens, usage.total_tokens
        if tokens == told and only.cached_tokens == usage.cached_tokens:
            run = 1, tasks, messages, int(only.tells)
            rest = only.cached_tokens, only.uncertain, waited_ms
            return (Used(only.model, *run, *tokens, duration_ms, *rest, upstream=only.upstream),)
    unnamed = ModelUsage(
        "",
        usage.input_tokens - sum([each.input_tokens for each in models]),
        usage.output_tokens - sum([each.output_tokens for each in models]),
        usage.total_tokens - sum([each.total_tokens for each in models]),
        usage.cached_tokens - sum([each.cached_tokens for each in models]),
    )
    if unnamed.tells:
        unnamed = _at_least_nothing(unnamed)
    if unnamed.tells or not models:
        models = (*models, unnamed)
    first = next((each for each in models if each.tells), models[0])
    found: list[Used] = []
    for each in models:
        run = (1, tasks, messages, int(each.tells)) if each is first else (0, 0, 0, 0)
        times = (duration_ms, waited_ms) if each is first else (0, 0)
        tokens = each.input_tokens, each.output_tokens, each.total_tokens
        used = Used(each.model, *run, *tokens, times[0], each.cached_tokens, each.uncertain, times[1], each.upstream)
        found.insert(0 if each is first else len(found), used)
    return tuple(found)


def _at_least_nothing(part: ModelUsage) -> ModelUsage:
    """The rest of a whole, which is nothing where its models have reported more than that."""
    return ModelUsage(
        "",
        max(0, part.input_tokens),
        max(0, part.output_tokens),
        max(0, part.total_tokens),
        max(0, part.cached_tokens),
    )
