"""What became of messages that went through a gateway, and what the upstreams themselves wrote down of them.

Each upstream has a ledger: a file to which its agent adds a line, and waits for the disk, before it does anything else.

Invariant: pure, but for `read_ledgers`. An outcome is what the caller was told, never what somebody else knows.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dragoman.model.task import TERMINAL, Task, TaskState

UNCERTAIN = frozenset({"upstream_uncertain", "upstream_timeout"})
"""The reasons of a task whose message may have been executed, or not: no answer came, or it came too late."""

ANSWERED = frozenset({"upstream_failed", "upstream_rejected", "upstream_unreadable", "upstream_lost_task"})
"""The reasons of a task whose upstream answered with a failure, after which it may have done something or not."""


class Execution(NamedTuple):
    """A line of a ledger: the upstream that wrote it, and the text of the message that its agent was given."""

    upstream: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """The answer to a message: a state of its task and the reason in it, or `refused`, the kind of the error."""

    text: str
    state: TaskState | None = None
    reason: str = ""
    refused: str = ""

    @property
    def kind(self) -> str:
        """One word for tables."""
        return self.refused or self.reason or (self.state.value if self.state is not None else "nothing")


def outcome_of(text: str, task: Task) -> Outcome:
    """The outcome of a message whose task the caller has."""
    metadata = task.status.message.metadata if task.status.message is not None else None
    return Outcome(text, task.status.state, str((metadata or {}).get("reason", "")))


def read_ledgers(ledgers: Mapping[str, Path]) -> list[Execution]:
    """Every execution, by the name of the upstream."""
    return [
        Execution(name, json.loads(line)["text"])
        for name, file in ledgers.items()
        if file.exists()
        for line in file.read_text().splitlines()
    ]


def wrong_sends(outcomes: Sequence[Outcome], executed: Sequence[Execution]) -> Iterator[str]:
    """No message is executed twice, over all upstreams together. One whose task completed is executed. One that was
    refused is not, and neither is one that failed, unless its reason says that this is unknown."""
    at: dict[str, list[str]] = defaultdict(list)
    for execution in executed:
        at[execution.text].append(execution.upstream)
    for outcome in outcomes:
        where = at.pop(outcome.text, [])
        said = f"{outcome.text[:40]!r} ended as {outcome.kind} and was executed at {', '.join(where) or 'no upstream'}"
        if len(where) > 1:
            yield said
        if outcome.state is TaskState.COMPLETED:
            if not where:
                yield said
        elif outcome.state is not None and outcome.state not in TERMINAL:
            yield f"{outcome.text[:40]!r} has no end: it is {outcome.state.value}"
        elif where and outcome.reason not in UNCERTAIN | ANSWERED:
            yield said
        elif outcome.state is None and not outcome.refused:
            yield f"{outcome.text[:40]!r} has no outcome"
    for text, where in at.items():
        yield f"{text[:40]!r} was executed at {', '.join(where)}, and nobody sent it"


def strays(executed: Sequence[Execution]) -> Iterator[str]:
    """Every message of a conversation is executed at one upstream. A text's first two words name its conversation."""
    at: dict[str, set[str]] = defaultdict(set)
    for execution in executed:
        at[" ".join(execution.text.split()[:2])].add(execution.upstream)
    for conversation, upstreams in at.items():
        if len(upstreams) > 1:
            yield f"{conversation} was had at {', '.join(sorted(upstreams))}"
