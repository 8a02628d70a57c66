"""The table of decisions: what is appended to a task's log at each request, as the task and its lease stand.

Invariant: the engine decides, and the store only takes down what it is given. `tests.law.test_rules` holds the rules
against the same rows without an engine.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from dragoman.engine.auto_runs import AutoRuns
from dragoman.engine.bounds import Bounds
from dragoman.engine.code_versions import CodeVersions
from dragoman.engine.effects import Effects
from dragoman.engine.ends import TaskEnds
from dragoman.engine.engine import Engine
from dragoman.engine.errands import Errands
from dragoman.engine.files import Files
from dragoman.engine.hints import Hints
from dragoman.engine.intake import Intake
from dragoman.engine.leases import Neighbours, TaskLeases
from dragoman.engine.log import Log
from dragoman.engine.policy import EngineSettings
from dragoman.engine.rules import Decision, EndWorkerLease, LeaseToWorker, Request, SwitchOff, WritePage, WriteWords
from dragoman.engine.runs.history import History
from dragoman.engine.runs.registry import Runs
from dragoman.engine.runs.run import RunPhase
from dragoman.engine.runs.run_writer import RunWriter
from dragoman.engine.runs.services import RunServices
from dragoman.engine.served_agents import Served
from dragoman.engine.spending import TaskSpending
from dragoman.engine.stopping import Stopping
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.engine.webhooks import WebhookOperations
from dragoman.model.errors import A2AError, TaskNotCancelable
from dragoman.model.events import Event, Intervened, Logged, Placed, StatusChanged, Submitted
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import CancelTask, CreatePushConfig, PushConfig, SendMessage
from dragoman.model.task import INTERRUPTED, STATES, TaskHead, TaskState
from dragoman.store.api import ASLEEP, Append, Appended, Stored, TaskEnded
from dragoman.store.outbox import Registration
from dragoman.store.replicas import Replica
from dragoman.store.worker_leases import WORKER, WorkerLease, WorkerLeaseChange
from tests.engine.house import StandingClock, call
from tests.law.stage import Actor, name_of, spell, told

HERE, ELSEWHERE, NOBODY = "here", "elsewhere", "nobody"

AT = "2026-01-01T00:00:00.000Z"
HEAD = TaskHead(id="task", context_id="context", agent="agent", owner="anna", dialect="1.0", mount="/", created_at=AT)
EPOCH = 5

SETTINGS = EngineSettings()

Facts = dict[str, Any]

LEASES = {"nobody": None, "here": HERE, "elsewhere": ELSEWHERE}

OWNERS = {"nobody": None, "here": HERE, "a worker": WORKER}

SLEEPERS = {"nobody, and the task sleeps": ASLEEP}

LEASE = WorkerLease(
    task_id="task", agent="agent", token="task.a", worker="w", replays=False, delivery=1, since=1, version=1
)

HOLDERS = {**LEASES, **OWNERS, **SLEEPERS}

RUNS: dict[str, tuple[int, bool] | None] = {
    "none": None,
    "at work under the lease": (EPOCH, False),
    "at work under the lease before": (EPOCH - 1, False),
    "asks under the lease": (EPOCH, True),
    "asks under the lease before": (EPOCH - 1, True),
    "asks under an older lease": (EPOCH - 2, True),
}
"""The run here: the epoch under which it writes, and whether it waits for an answer."""

EPOCHS = {"the same": EPOCH, "an older": EPOCH - 1}

BOTH = {"no": False, "yes": True}

KEEPERS: dict[str, str | None] = {"nobody": None, "here": HERE, "elsewhere": ELSEWHERE}

AGENTS: dict[str, str] = {"here": "served", "here, and waits to be taken on": "waits", "elsewhere": "not served"}

ANSWERS = {"whatever is asked": "", "this question": "q", "another question": "p"}

CHILDREN: dict[str, tuple[str, ...]] = {"no": (), "yes": ("child",), "another": ("other",)}

STATE = {name_of(state): state for state in STATES}

W = TaskState.WORKING


class Ledger:
    """A store with one task, which takes down what it is to append, and has done it."""

    def __init__(self, stored: Stored, webhooks: int, living: Sequence[str]) -> None:
        self.stored = stored
        self.appended: list[Append] = []
        self.writing = SimpleNamespace(outage=None)
        self.worker_leases = self.state = None
        configs = tuple(PushConfig(url=f"https://example.org/{each}", id=str(each)) for each in range(webhooks))
        self.outbox = SimpleNamespace(configs=lambda _: self._later(configs), register=self._register)
        replicas = tuple(Replica(id=each, address="", agents=("agent",), started_ms=0) for each in living)
        self.replicas = SimpleNamespace(history="", all=lambda: self._later(replicas))

    def __getattr__(self, name: str) -> Any:
        if name in ("load", "load_after", "find"):
            return lambda *_: self._later(self.stored)
        if name in ("recall", "request_cancel"):
            return lambda *_: self._later(None)
        raise AttributeError(name)

    async def _later(self, result: Any) -> Any:
        return result

    def _register(self, *_: Any) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def append(self, append: Append) -> "asyncio.Future[Appended]":
        """Take an append down."""
        self.appended.append(append)
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        done.set_result(Appended(self.stored.seq + len(append.events), EPOCH + (append.holder is not None), 1))
        return done


class Silence:
    """An announcer that tells nobody."""

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """See `Announcer`."""
        return Registration(config=config, host="https://example.org:443")

    def deliveries(self, head: Any, configs: Any, steps: Any, put_off: Any) -> Any:
        """See `Announcer`."""
        return (), put_off

    def wake(self) -> None:
        """See `Announcer`."""


class Led:
    """A run as the registry of runs has it."""

    def __init__(self, lease: int, asking: bool) -> None:
        self.head = HEAD
        self.lease = lease
        self.phase = RunPhase.WORKING
        self.asking = asking
        self.suspended = asking
        self.abandoned = False

    def resumes_under(self, epoch: int) -> bool:
        """See `TaskRun`."""
        return self.asking and epoch == self.lease + 1

    def abandon(self) -> None:
        """See `TaskRun`."""

    def resume(self, message: Message | None) -> bool:
        """See `TaskRun`."""
        return True

    def receive(self, message: Message, answers: bool = False) -> None:
        """See `TaskRun`."""

    def deliver(self, log: Log, message: Message, answers: bool = False) -> None:
        """See `RunKeeper`."""

    def remembers_more(self, log: Log) -> bool:
        return False

    def leased_anew(self, log: Log) -> bool:
        """See `RunKeeper`."""
        return True


def question(facts: Facts) -> Message | None:
    """The message of the task's status."""
    if STATE[facts["state"]] not in INTERRUPTED:
        return None
    children = CHILDREN[facts.get("asks for the child", "no")]
    return Message(message_id="q", role=Role.AGENT, parts=(Part(text="what?"),), reference_task_ids=children)


def placed(facts: Facts) -> Placed | None:
    """The record that the task's status keeps of a sleep."""
    return Placed("1", wakes_ms=1, wakes_on_message=True) if facts.get("a message wakes it") == "yes" else None


def stored(facts: Facts) -> Stored:
    """The task as the facts say."""
    state, said = STATE[facts["state"]], Message(message_id="m", role=Role.USER, parts=(Part(text="hi"),))
    events: list[Event] = [Submitted(said, AT), StatusChanged(state, AT, message=question(facts), placed=placed(facts))]
    return Stored(
        head=HEAD,
        seq=2,
        epoch=EPOCH,
        state=state,
        status_ms=0,
        holder=HOLDERS[facts.get("lease", "nobody")],
        cancel_requested=False,
        snapshot=None,
        events=tuple(Logged(seq, event) for seq, event in enumerate(events, 1)),
        keeper=KEEPERS[facts.get("keeper", "nobody")],
        pushed="webhooks" in facts,
    )


class Place:
    """The objects of one replica, as far as they take part in decisions, and the task."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        living = (HERE,) if facts.get("keeper is alive") == "no" else (HERE, ELSEWHERE)
        store: Any = Ledger(stored(facts), facts.get("webhooks", 0), living)
        self.store, clock, self.runs = store, StandingClock(), Runs()
        kind = AGENTS[facts.get("agent", "here")]
        self.runner = Actor(waits=kind == "waits", one_message=facts.get("one message") == "yes")
        served = Served({} if kind == "not served" else {"agent": self.runner})
        hints = Hints(store, poll_s=60, healthy_poll_s=60)
        self.leases = TaskLeases(HERE, served, store, clock, retry_s=0.1, runs=self.runs, hints=hints)
        if facts.get("takes work") == "no":
            self.leases.fence()
        if facts.get("stopping") == "yes":
            self.leases.close()
        effects, files = Effects(), Files()
        self.tasks = Tasks(store, served, effects, None, Silence(), None)
        past, bounds, stopping = History(store, files), Bounds(SETTINGS.max_text), Stopping()
        services = RunServices(
            clock=clock,
            loop=asyncio.get_running_loop(),
            past=past,
            state=store.state,
            files=files,
            bounds=bounds,
            server="",
            effects=effects,
            stopping=stopping,
            suspend_max_s=SETTINGS.suspend_max_s,
            suspend_after_s=SETTINGS.suspend_after_s,
            max_steps=SETTINGS.max_steps,
            retry_s=SETTINGS.retry_s,
        )
        self.ends = TaskEnds(self.leases, self.runs, clock, store.worker_leases)
        errands = Errands(self.tasks, self.ends, effects, stopping, retry_s=SETTINGS.retry_s)
        auto = AutoRuns(services, errands, None)
        versions = CodeVersions(self.leases, self.ends, Neighbours(store, self.leases, 1), clock, 1)
        supervisor = Supervisor(self.leases, self.runs, self.tasks, self.ends, versions, errands, auto, services)
        self.webhooks = webhook_operations(store, self.tasks, self.leases)
        self.intake = Intake(
            store, self.tasks, supervisor, auto, services, SETTINGS, self.webhooks, TaskSpending(store)
        )
        self.engine = Engine(store, {"agent": self.runner}, clock=clock, settings=SETTINGS, holder=HERE)

    async def load(self) -> Any:
        """The log of the task, with its run."""
        task = await self.tasks.pin_known("task")
        assert task is not None
        if (run := RUNS[self.facts.get("run", "none")]) is not None:
            led: Any = Led(*run)
            led.log = task
            self.runs.add(led, led)
        return task


def webhook_operations(store: Any, tasks: Tasks, leases: TaskLeases) -> WebhookOperations:
    """The operations on webhooks."""
    return WebhookOperations(store, tasks, leases, Silence())


def message(push: bool, answers: str = "") -> SendMessage:
    """A caller's message to the task, perhaps with a webhook, or as the answer to one question."""
    said = Message(message_id="further", role=Role.USER, parts=(Part(text="this"),), task_id="task")
    config = PushConfig(url="https://example.org/new", id="new") if push else None
    return SendMessage(message=said, push_config=config, answers=answers)


async def send(place: Place, task: Any, facts: Facts, operator: str | None = None) -> None:
    """A caller's message, or an operator's answer."""
    operation = message(facts.get("with a webhook") == "yes", ANSWERS[facts.get("answers", "whatever is asked")])
    runner = place.runner if facts["agent"] != "elsewhere" else None
    await place.intake.take(runner, call(operation, operator=operator), operation)


async def join(place: Place, task: Any, facts: Facts) -> None:
    """A caller's webhook."""
    operation = CreatePushConfig(config=PushConfig(url="https://example.org/new", id="new", task_id="task"))
    await place.webhooks.answer(call(operation), operation)


async def note_cancel(place: Place, task: Any, facts: Facts) -> None:
    """An operator's cancel, as far as its note: nothing has been started that could end the task."""
    with suppress(RuntimeError, AttributeError, TaskNotCancelable):
        await place.engine.operations.call(call(CancelTask(id="task"), operator="op"))


async def accept(place: Place, task: Any, facts: Facts) -> None:
    """An offer is accepted, in a turn before which the task may be leased anew."""
    async with task.writes.turn(task):
        accepting = asyncio.create_task(place.leases.accept(task, nothing))
        await asyncio.sleep(0)
        if facts["leased anew meanwhile"] == "yes":
            task.lease_of(replace(place.store.stored, epoch=EPOCH + 1))
    await accepting


async def end(place: Place, task: Any, facts: Facts) -> None:
    """An end in place of the run."""
    epoch = {"none": None, **EPOCHS}[facts["epoch"]]
    await place.ends.end(task, TaskState.FAILED, "broken", "because", epoch=epoch)


async def say(place: Place, task: Any, facts: Facts) -> None:
    """A page of a run that began when the task was submitted, and knows nothing of what others wrote since."""
    refused: list[Exception] = []

    def stop(error: Exception) -> None:
        refused.append(error)
        writer.stop()

    execution: Any = SimpleNamespace(lose=stop)
    writer = RunWriter(task, asyncio.get_running_loop(), execution, retry_s=0.1)
    writer.state = TaskState.SUBMITTED
    writer.put(StatusChanged(STATE[facts["says"]], AT), 1)
    await writer.drained()
    if refused:
        raise refused[0]


class Kind:
    """A kind of request: what it depends on, and how it is made."""

    def __init__(self, ask: Callable[[Place, Any, Facts], Awaitable[Any]], **facts: Sequence[Any]) -> None:
        self.ask = ask
        self.facts = {name.replace("_", " "): values for name, values in facts.items()}


def nothing() -> None:
    """Do nothing about a commit."""


def words(facts: Facts) -> WriteWords:
    """What a worker says, or what is said in its place."""
    says = STATE[facts["says"]]
    change = WorkerLeaseChange(LEASE) if facts["under a lease"] == "yes" else None
    return WriteWords((StatusChanged(says, AT),), says, change)


def sleeping(facts: Facts) -> WriteWords:
    """A worker says that its task sleeps."""
    change = WorkerLeaseChange(LEASE, over=True) if facts["under a lease"] == "yes" else None
    return WriteWords((StatusChanged(W, AT),), W, change, wakes_ms=2)


def leasing(facts: Facts) -> LeaseToWorker:
    """A worker takes the task."""
    begins_with = "2" if BOTH[facts["names a version"]] else ""
    return LeaseToWorker(WorkerLeaseChange(LEASE, granted_ms=1), BOTH[facts["answered"]], begins_with)


def switching_off() -> SwitchOff:
    """An operator has disabled the agent."""
    said = Message(
        message_id="e", role=Role.AGENT, parts=(Part(text="out of service"),), metadata={"reason": "because"}
    )
    return SwitchOff(Intervened("op", "cancel", AT), StatusChanged(TaskState.CANCELED, AT, message=said))


def ask_rules(request: Callable[[Facts], Request]) -> Callable[[Any, Any, Facts], Awaitable[Any]]:
    """A request that is asked of the rules as it stands."""
    return lambda place, task, facts: task.writes.append(task, partial(place.leases.decide, request(facts)))


REQUESTS: dict[str, Kind] = {
    "AddMessage": Kind(
        send,
        run=("none", "at work under the lease", "asks under the lease"),
        keeper=KEEPERS,
        keeper_is_alive=BOTH,
        agent=AGENTS,
        one_message=BOTH,
    ),
    "AddMessage to a task that may sleep": Kind(
        send, lease=(*SLEEPERS, "elsewhere"), agent=AGENTS, one_message=BOTH, a_message_wakes_it=BOTH
    ),
    "AddMessage that answers one question": Kind(
        send, run=("none", "asks under the lease"), agent=AGENTS, answers=("this question", "another question")
    ),
    "AddMessage with a webhook": Kind(
        send, run=("none", "at work under the lease"), agent=AGENTS, with_a_webhook=("yes",), webhooks=(1, 19, 20)
    ),
    "OperatorAnswer": Kind(
        lambda place, task, facts: send(place, task, facts, "op"),
        run=("none", "asks under the lease"),
        keeper=KEEPERS,
        keeper_is_alive=BOTH,
        agent=AGENTS,
    ),
    "OperatorAnswer to one question": Kind(
        lambda place, task, facts: send(place, task, facts, "op"),
        run=("none", "asks under the lease"),
        agent=AGENTS,
        answers=("this question", "another question"),
    ),
    "NoteCancel": Kind(note_cancel, lease=LEASES, keeper=KEEPERS),
    "AddWebhook": Kind(join, lease=LEASES, keeper=KEEPERS, webhooks=(1, 19, 20)),
    "UseClaim": Kind(
        lambda place, task, _: place.leases.use_claim(task), lease=LEASES, run=RUNS, keeper=KEEPERS, agent=AGENTS
    ),
    "AcceptOffer": Kind(accept, lease=LEASES, run=RUNS, keeper=KEEPERS, leased_anew_meanwhile=BOTH),
    "WithdrawQuestion": Kind(
        lambda place, task, _: place.leases.take_back(task, "child", nothing),
        run=("none", "asks under the lease"),
        keeper=KEEPERS,
        keeper_is_alive=BOTH,
        agent=AGENTS,
        asks_for_the_child=CHILDREN,
        stopping=BOTH,
    ),
    "GiveBack": Kind(
        lambda place, task, facts: place.leases.requeue(task, EPOCHS[facts["epoch"]]),
        lease=LEASES,
        run=RUNS,
        epoch=EPOCHS,
    ),
    "HandOver": Kind(
        lambda place, task, facts: place.leases.hand_over(task, EPOCHS[facts["epoch"]], ELSEWHERE),
        lease=LEASES,
        run=RUNS,
        epoch=EPOCHS,
    ),
    "PutAside": Kind(
        lambda place, task, facts: place.leases.put_aside(task, EPOCHS[facts["epoch"]], 2),
        lease=LEASES,
        run=RUNS,
        epoch=EPOCHS,
    ),
    "Disown": Kind(lambda place, task, _: place.leases.disown(task), lease=LEASES, run=RUNS, keeper=KEEPERS),
    "EndTask": Kind(
        end, lease=LEASES, run=("none", "at work under the lease"), keeper=KEEPERS, epoch=("none", *EPOCHS)
    ),
    "SwitchOff": Kind(ask_rules(lambda _: switching_off()), lease=HOLDERS, keeper=(NOBODY, ELSEWHERE)),
    "WritePage": Kind(say, lease=LEASES, keeper=KEEPERS, says=STATE),
    "WritePage that puts the task to sleep": Kind(
        ask_rules(lambda facts: WritePage((StatusChanged(W, AT),), EPOCH, W, 1, wakes_ms=2)), lease=LEASES
    ),
    "LeaseToWorker": Kind(ask_rules(leasing), lease=OWNERS, answered=BOTH, names_a_version=BOTH),
    "EndWorkerLease": Kind(
        ask_rules(lambda facts: EndWorkerLease(WorkerLeaseChange(LEASE, over=True))),
        lease=OWNERS,
        keeper=(NOBODY, ELSEWHERE),
    ),
    "WriteWords": Kind(ask_rules(words), lease=OWNERS, keeper=(NOBODY, ELSEWHERE), says=STATE, under_a_lease=BOTH),
    "WriteWords that put the task to sleep": Kind(ask_rules(sleeping), lease=OWNERS, under_a_lease=BOTH),
}
"""The kinds of requests, by the names that the rules have for them."""


def rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of a kind of request, one for each of its cells at which something is written or refused."""
    kind = REQUESTS[name]
    log = logging.getLogger("dragoman")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        for word, facts in cells(name):
            if result := asyncio.run(row(kind, facts)):
                yield {"word": word, **result}
    finally:
        log.setLevel(level)


def cells(name: str) -> Iterator[tuple[str, Facts]]:
    """Each state with each combination of what a kind of request depends on, in words and as facts."""
    kind = REQUESTS[name]
    for values in product(STATE, *kind.facts.values()):
        facts = dict(zip(("state", *kind.facts), values, strict=True))
        yield ", ".join(f"{fact} {value}" for fact, value in facts.items()), facts


async def row(kind: Kind, facts: Facts) -> dict[str, Any]:
    """What is appended at a request, or its refusal; empty if nothing happens."""
    place = Place(facts)
    task = await place.load()
    try:
        await kind.ask(place, task, facts)
    except (A2AError, TaskEnded) as error:
        return {"told": told(error)}
    return show(place.store.appended[0]) if place.store.appended else {}


def show(append: Any) -> dict[str, Any]:
    """An append, or a decision, in short."""
    guard = "lease and state" if append.expected_epoch else "log" if append.epoch is None else "lease of the run"
    depends = append.depends if isinstance(append, Decision) else append.expected_seq is not None
    guard += ", and the log" if append.expected_epoch and depends else ""
    lease = "stays"
    if append.to_worker:
        lease = "the worker's that has one of its own, else nobody"
    elif append.holder is not None:
        lease = f"{append.holder}, offered for {append.offered_ms} ms" if append.offered_ms else append.holder
        lease += "" if append.wakes_ms is None else f" until {append.wakes_ms}"
    elif append.release:
        lease = f"nobody, kept by {append.keeper or NOBODY}"
    return {
        "events": [event.action if isinstance(event, Intervened) else spell(event) for event in append.events],
        "guard": guard,
        "lease": lease,
        **({"worker's lease": spell_change(append.lease)} if append.lease is not None else {}),
        **({"webhook": append.push.config.id} if append.push is not None else {}),
    }


def spell_change(change: WorkerLeaseChange) -> str:
    """What becomes of a worker's lease."""
    return "granted" if change.granted_ms else "over" if change.over else "goes on"
