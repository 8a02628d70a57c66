"""The table of local agents: what each word does in each situation of the task and its lease.

Invariant: a row is made by a process of its own, so that rows do not depend on each other.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from dragoman.engine.api import Delegation, Ended, Reject, Replied, Run
from dragoman.model.message import Artifact, Part
from dragoman.model.operations import CancelTask
from dragoman.model.task import TaskState, Usage
from dragoman.store.api import Append
from tests.engine.house import call
from tests.law.stage import CANCEL_GRACE_S, ELSEWHERE, REFERENCE, Actor, Outcome, Stage, after, determined, sends, waits

DEADLINE_S = 60.0
"""The deadline of agents that have one: longer than it takes to come into a situation."""


def text(words: str) -> tuple[Part, ...]:
    return (Part(text=words),)


async def give(run: Run, words: str, artifact_id: str = "a", *, append: bool = False, last_chunk: bool = False) -> None:
    """Give a chunk of an artifact."""
    parts = text(words) if words else ()
    await run.artifact(Artifact(artifact_id=artifact_id, parts=parts), append=append, last_chunk=last_chunk)


async def use_and_say(run: Run) -> None:
    """Report tokens, and words."""
    run.usage(Usage(1, 2, 3))
    await run.status(text("hm"))


async def plainly(word: Callable[[], None]) -> None:
    """Say a word that needs no wait."""
    word()


async def end(run: Run, how: BaseException | None = None) -> None:
    """Leave the agent."""
    if how is not None:
        raise how


WORDS: dict[str, Callable[[Run], Any]] = {
    "working": lambda run: plainly(run.working),
    "say nothing": lambda run: run.status(()),
    "say text": lambda run: run.status(text("hm")),
    "say progress": lambda run: run.status((), progress=(1, 2)),
    "say metadata": lambda run: run.status((), metadata={"k": 1}),
    "waiting": lambda run: plainly(partial(run.waiting, text("busy"))),
    "give a": lambda run: give(run, "new", last_chunk=True),
    "give chunk of a": lambda run: give(run, "more", append=True),
    "give chunk of b": lambda run: give(run, "more", "b", append=True),
    "give nothing": lambda run: give(run, ""),
    "note": lambda run: plainly(partial(run.note, place="Rome")),
    "note soon": lambda run: plainly(partial(run.note_soon, place="Rome")),
    "usage": use_and_say,
    "written": lambda run: run.written(),
    "ask": lambda run: run.ask(text("what?")),
    "ask something else": lambda run: run.ask(text("why?")),
    "ask for sign-in": lambda run: run.ask(text("what?"), auth=True),
    "delegate": lambda run: run.delegate(Delegation(agent="other", parts=text("do it"))),
    "delegate to nobody": lambda run: run.delegate(Delegation(agent="nobody", parts=text("do it"))),
    "delegate and leave": lambda run: run.delegate(Delegation(agent="other", parts=text("do it"), detach=True)),
}

ENDS: dict[str, Callable[[Run], Any]] = {
    "return": end,
    "reject": lambda run: end(run, Reject("no")),
    "reply": lambda run: end(run, Replied(text("so"))),
    "end failed": lambda run: end(run, Ended(TaskState.FAILED, text("broken"), "because")),
    "end canceled": lambda run: end(run, Ended(TaskState.CANCELED)),
    "end, nobody takes it": lambda run: end(run, Ended(TaskState.FAILED, text("busy"), retry_after_s=3)),
    "raise": lambda run: end(run, KeyError("oops")),
    "exit": lambda run: end(run, SystemExit(3)),
    "cancel itself": lambda run: end(run, asyncio.CancelledError()),
}


# -- situations --------------------------------------------------------------------------------------------------------


def working(**traits: Any) -> Stage:
    """A task that was just made, and its agent at work on it."""
    stage = Stage(lambda: (Actor(**traits), Actor("other")))
    stage.send()
    return stage


def say(stage: Stage, name: str, *, aside: bool = False) -> Outcome:
    """Have the agent say a word."""
    known = WORDS.get(name)
    outcome: Outcome = stage.agents["agent"].speaker.order(known or ENDS[name], ends=known is None, aside=aside)
    stage.settle()
    return outcome


def says(name: str, *, aside: bool = False) -> Callable[[Stage], object]:
    """The agent says a word."""
    return lambda stage: say(stage, name, aside=aside)


def cancel(stage: Stage) -> None:
    """The caller cancels the task."""
    stage.spawn(stage.engine.operations.call(call(CancelTask(id=stage.task_id))))
    stage.settle()


def take_over(stage: Stage) -> None:
    """Another replica takes the lease of the task."""
    row = stage.database.rows[stage.task_id]
    lease = Append(
        task_id=stage.task_id,
        events=(),
        state=row.state,
        status_ms=row.status_ms,
        expected_epoch=row.epoch,
        holder=ELSEWHERE,
    )
    stage.database.append(ELSEWHERE, lease)


def drain(stage: Stage) -> None:
    """The server begins to stop."""
    stage.spawn(stage.engine.drain(60))
    stage.settle()


GIVEN = after(working, says("give chunk of a"))

RESTARTABLE = after(partial(working, restartable=True), says("give chunk of a"))

REPLAYING = after(GIVEN, says("ask"), Stage.crash, sends("this"))

ANSWERED_AND_CRASHED = after(RESTARTABLE, says("ask"), sends("this"), says("give chunk of a"), Stage.crash)

CANCELING = after(GIVEN, cancel)

OVERDUE = after(partial(working, deadline_s=DEADLINE_S), says("give chunk of a"), waits(DEADLINE_S))

SITUATIONS: dict[str, Callable[[], Stage]] = {
    "submitted: nobody has taken it on": lambda: working(waits=True),
    "working": working,
    "working, a chunk of a given": GIVEN,
    "a question of another branch is open": after(GIVEN, says("ask", aside=True)),
    "answered": after(GIVEN, says("ask"), sends("this")),
    "the caller has sent a message": after(GIVEN, sends("and this")),
    "another branch waits for a delegation": after(GIVEN, says("delegate", aside=True)),
    "replaying: the next question has its answer": REPLAYING,
    "replayed: the last answer is consumed": after(REPLAYING, says("ask")),
    "run again after a crash": after(RESTARTABLE, Stage.crash),
    "run again after a crash, replaying": ANSWERED_AND_CRASHED,
    "run again after a crash, replayed": after(ANSWERED_AND_CRASHED, says("ask")),
    "asked to stop by a cancel": CANCELING,
    "canceled, and still there": after(CANCELING, waits(CANCEL_GRACE_S)),
    "asked to stop by its deadline": OVERDUE,
    "failed by its deadline, and still there": after(OVERDUE, waits(CANCEL_GRACE_S)),
    "taken over by another replica, unknowingly": after(GIVEN, take_over),
    "the server is stopping": after(GIVEN, drain),
}


def rows(situation: str) -> Iterator[dict[str, Any]]:
    """The rows of a situation, one for each word."""
    for name in (*WORDS, *ENDS):
        with determined():
            stage = SITUATIONS[situation]()
            speaker, before = stage.agents["agent"].speaker, stage.snapshot()
            outcome = say(stage, name)
            row = {"word": name, "told": outcome.said, **stage.since(before)}
            row["run"] = "over" if speaker.over else "goes on"
            row["events"] = [REFERENCE.sub("reference …", event) for event in row["events"]]
            stage.close()
        yield row
