"""Two principals do whatever they please, in any dialect's manner: neither ever sees an id, a word or a webhook of the
other's, and what is the other's is answered as what does not exist.

Answers are looked at as the engine gives them, before any dialect leaves out what it has no words for.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import beeos, evoai, kaos, protoagent, v03, v1
from dragoman.dialects.api import Dialect
from dragoman.engine.api import Run
from dragoman.model.errors import A2AError
from dragoman.model.message import Part
from dragoman.model.operations import (
    Call,
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.principal import AccessRole, Principal
from dragoman.model.task import Record
from dragoman.net.address import Guard
from dragoman.net.errors import Unresolved
from dragoman.push.announcer import WebhookAnnouncer
from dragoman.store.outbox import Lane
from tests.engine.house import DEADLINE_S, House, Scripted, house, say, sending
from tests.systems.test_foreign import unknown

DIALECTS: tuple[Dialect, ...] = (
    *(v1.JSONRPC, v03.JSONRPC, beeos.JSONRPC, kaos.JSONRPC, evoai.JSONRPC, protoagent.JSONRPC),
)
FORMS = {dialect.name: dialect.push for dialect in DIALECTS if dialect.push is not None}
PEOPLE = ("anna", "ben")
NOTHING = "01900000-0000-7000-8000-00000000000f"
SHARED_IDS = [f"0190b0a0-0000-7000-8000-00000000000{number}" for number in range(3)]
"""Message ids that both use."""

ONE = ("get", "cancel", "subscribe", "on", "hook", "hook-get", "hooks", "unhook")
"""The operations that name a task, and are refused for another's."""

VERBS = (
    *("send", "stream", "context", "refer", "recall", "list", "list-context", "offset"),
    *ONE,
)


REFERRED = re.compile(r'reference_task_ids=\([^)]*\)|"referenceTaskIds":\[[^\]]*\]')
"""The tasks that a message names: as its sender has named them, whosever they are."""


class Step(Struct, frozen=True):
    """One thing that somebody does. `which` picks a task, a context or a key of those that there are by then."""

    who: str
    verb: str
    dialect: str
    which: int
    does: str
    """The agent's orders: answer, ask or stay."""
    again: bool
    """Whether with an id that others use as well, so that calls may be taken for the same."""


STEPS = st.lists(
    st.builds(
        Step,
        who=st.sampled_from(PEOPLE),
        verb=st.sampled_from(VERBS),
        dialect=st.sampled_from([dialect.name for dialect in DIALECTS]),
        which=st.integers(0, 30),
        does=st.sampled_from(["answer", "answer", "ask", "stay"]),
        again=st.booleans(),
    ),
    min_size=15,
    max_size=50,
)


class Names:
    """Every name leads to a public address, but for one."""

    async def addresses(self, host: str) -> Sequence[str]:
        if host == "nowhere.example":
            raise Unresolved("does not exist, or has no address: check its name")
        return ["203.0.114.7"]


async def obey(run: Run) -> None:
    """Does what the last word says; whatever it gives out has the caller's words in it."""
    text = run.message.text
    match text.rpartition(" ")[2]:
        case "ask":
            answer = await run.ask((Part(text=f"{text}?"),))
            await say(run, f"{text}: {answer.text}", last=True)
        case "stay":
            await run.status((Part(text=f"{text}…"),))
            await asyncio.Event().wait()
        case "recall":
            said = [message.text for message in await run.history(100)]
            referred = [record.head.id for record in await run.references()]
            await say(run, " ".join(["before:", *said, *referred]), last=True)
        case _:
            await say(run, text, append=False, last=True)


class Walk:
    """A house, and what is whose so far. `marks` of somebody are what nobody else may see."""

    def __init__(self, here: House) -> None:
        self.here = here
        self.tasks: list[tuple[str, str]] = []
        self.contexts: list[str] = ["c-0", "c-1"]
        self.marks: dict[str, set[str]] = {who: set() for who in PEOPLE}
        self.named: dict[str, set[str]] = {who: set() for who in PEOPLE}
        """Contexts that somebody has named: of that name they have one of their own."""
        self.count = 0

    def marked(self, who: str, kind: str) -> str:
        """A word of theirs that nobody else says."""
        self.count += 1
        mark = f"{kind}{self.count}of{who}x"
        self.marks[who].add(mark)
        return mark

    def sent(self, step: Step) -> SendMessage:
        """A send; it does not wait."""
        kind = StreamMessage if step.verb == "stream" else SendMessage
        text = f"{'the same' if step.again else self.marked(step.who, 'word')} {step.does}"
        fields: dict[str, Any] = {"return_immediately": True}
        match step.verb:
            case "context":
                fields["context_id"] = self.context(step)
            case "recall":
                text = f"{text} recall"
                fields["context_id"] = self.context(step)
            case "refer":
                text = f"{text} recall"
                fields["reference_task_ids"] = tuple(task_id for _, task_id in self.tasks) or (NOTHING,)
            case "on":
                fields["task_id"] = self.picked(step)[1]
        if step.which % 3 == 0 and step.verb != "on" and step.dialect in FORMS:
            fields["push_config"] = self.webhook(step, "")
        message_id = SHARED_IDS[step.which % 3] if step.again else f"m{self.count}"
        return sending(text, kind, message_id=message_id, **fields)

    def webhook(self, step: Step, task_id: str) -> PushConfig:
        url = f"https://{self.marked(step.who, 'hook')}.example/"
        name = f"h{step.which % 2}" if step.again else ""
        return PushConfig(url=url, id=name, task_id=task_id, token=self.marked(step.who, "token"))

    def context(self, step: Step) -> str:
        """A context of anybody's."""
        picked = self.contexts[step.which % len(self.contexts)]
        self.named[step.who].add(picked)
        return picked

    def picked(self, step: Step) -> tuple[str, str]:
        """A task of anybody's, or of nobody's."""
        known = [*self.tasks, ("nobody", NOTHING)]
        return known[-1 - step.which % len(known)]

    def operation(self, step: Step) -> Operation:
        _, task_id = self.picked(step)
        match step.verb:
            case "get":
                return GetTask(id=task_id)
            case "cancel":
                return CancelTask(id=task_id)
            case "subscribe":
                return Subscribe(id=task_id)
            case "hook":
                return CreatePushConfig(config=self.webhook(step, task_id))
            case "hook-get":
                return GetPushConfig(task_id=task_id, id="h1" if step.again else "")
            case "hooks":
                return ListPushConfigs(task_id=task_id)
            case "unhook":
                return DeletePushConfig(task_id=task_id, id="h1" if step.again else "")
            case "list":
                return ListTasks(page_size=100, include_artifacts=True, history_length=100)
            case "list-context":
                return ListTasks(page_size=2, context_id=self.context(step))
            case "offset":
                return ListTasks(page_size=100, offset=step.which)
            case _:
                return self.sent(step)

    async def take(self, step: Step) -> None:
        """Do it, and look at the answer."""
        operation = self.operation(step)
        answer, shown = await self.answered(step, operation)
        owner, task_id = self.picked(step)
        if step.verb in ONE and owner not in (step.who, "nobody"):
            assert isinstance(answer, A2AError), f"{step}: {owner}'s task is there for {step.who}"
            nothing = unknown(task_id)
            twin, told = await self.answered(step, aimed(operation, nothing))
            assert isinstance(twin, A2AError)
            assert shown.replace(task_id, "ID") == told.replace(nothing, "ID")
        self.look(step, shown.replace(task_id, "") if step.verb in ONE else shown)
        if isinstance(answer, Record) and isinstance(operation, SendMessage):
            self.learn(step.who, answer, operation)

    def look(self, step: Step, shown: str) -> None:
        """Nothing of the other's is in what was shown, but for tasks that a message of one's own referred to."""
        shown = REFERRED.sub("", shown)
        for other in PEOPLE:
            if other != step.who:
                seen = [mark for mark in self.marks[other] - self.named[step.who] if mark in shown]
                assert not seen, f"{step}: {step.who} sees {seen} of {other}'s in {shown}"

    def learn(self, who: str, record: Record, sent: SendMessage) -> None:
        head = record.head
        assert head.owner == who
        if (who, head.id) not in self.tasks:
            assert head.id not in [task_id for _, task_id in self.tasks], "one task, two owners"
            self.tasks.append((who, head.id))
            self.marks[who].add(head.id)
            if sent.message.context_id is None and head.context_id not in self.contexts:
                self.marks[who].add(head.context_id)
                if len(self.contexts) < 6:
                    self.contexts.append(head.context_id)

    async def answered(self, step: Step, operation: Operation) -> tuple[Any, str]:
        """The answer, and all that is in it."""
        dialect = next(each for each in DIALECTS if each.name == step.dialect)
        call = Call(
            operation=operation,
            principal=Principal(step.who, AccessRole.CALLER),
            agent="agent",
            dialect=dialect.name,
            mount="/",
            manners=dialect.manners,
            folds=bool(dialect.folds),
            idempotency_key=f"key{step.which % 2}" if step.again and step.which % 5 == 0 else None,
        )
        async with asyncio.timeout(DEADLINE_S):
            try:
                if not isinstance(operation, StreamMessage | Subscribe):
                    result = await self.here.engine.operations.call(call)
                    return result, repr(result)
                stream = await self.here.engine.operations.stream(call)
            except A2AError as error:
                return error, f"{dialect.encode_error(error)!r} {error!r}"
            items: list[Any] = []
            while batch := await stream.next(0.001):
                items.extend(batch)
            stream.close()
            assert stream.head is not None
            if isinstance(operation, StreamMessage):
                call = replace(call, operation=GetTask(id=stream.head.id))
                record = await self.here.engine.operations.call(call)
                return record, repr((record, stream.head, stream.base, items))
            return items, repr((stream.head, stream.base, items))

    async def end(self) -> None:
        """Everyone cancels what is theirs."""
        for owner, task_id in self.tasks:
            await self.answered(Step(owner, "cancel", "kaos", 0, "", False), CancelTask(id=task_id))

    async def delivered(self) -> None:
        """The calls owed to webhooks: each is told of its owner's tasks only."""
        outbox, now_ms = self.here.store.outbox, self.here.clock.ms
        for lane in Lane:
            while due := await outbox.claim(lane, now_ms, now_ms + 60_000, 100, 100):
                for each in due:
                    owner = next(who for who in PEOPLE if f"of{who}x" in each.config.url)
                    assert (owner, each.task_id) in self.tasks
                    text = REFERRED.sub("", each.delivery.body.decode())
                    for other in PEOPLE:
                        theirs = set() if other == owner else self.marks[other] - self.named[owner]
                        assert not [mark for mark in theirs if mark in text]


def aimed(operation: Operation, task_id: str) -> Operation:
    """The same about another task."""
    match operation:
        case SendMessage(message=message):
            return replace(operation, message=replace(message, task_id=task_id))
        case CreatePushConfig(config=config):
            return replace(operation, config=replace(config, task_id=task_id))
        case GetTask() | CancelTask() | Subscribe():
            return replace(operation, id=task_id)
        case GetPushConfig() | ListPushConfigs() | DeletePushConfig():
            return replace(operation, task_id=task_id)
        case _:
            raise AssertionError(operation)


async def walk(steps: list[Step]) -> None:
    announcer = WebhookAnnouncer(FORMS, Guard(), Names(), lambda: None)
    async with house(Scripted(obey), announcer=announcer) as here:
        taken = Walk(here)
        for step in steps:
            await taken.take(step)
            here.clock.ms += 1
        for who in PEOPLE:  # whoever did nothing looks around as well
            for verb in ("list", "list-context", "get", "hooks"):
                for which in range(6):
                    await taken.take(Step(who, verb, "protoagent", which, "answer", False))
        await taken.end()
        await taken.delivered()


@given(STEPS)
def test_neither_ever_sees_the_other(steps: list[Step]) -> None:
    asyncio.run(walk(steps))
