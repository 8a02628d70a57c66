"""Clients: they send, send again, follow, answer, cancel and list, at any replica, and record what they were told.

Invariant: a client behaves as A2A clients do. After a lost connection it sends the same message again, perhaps to
another replica, and a stream goes on behind the last event it brought. Its pauses are of the simulation's own time.
"""

import asyncio
from collections.abc import Collection, Sequence
from random import Random
from typing import Any

from dragoman.engine.handler import Direct, Snapshot
from dragoman.model.errors import (
    A2AError,
    TaskNotCancelable,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.events import Logged, StatusChanged
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import (
    Call,
    CancelTask,
    CreatePushConfig,
    GetTask,
    ListTasks,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
    TaskPage,
)
from dragoman.model.principal import Principal
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskState
from tests.simulation.agents import ANSWERS, HIRED
from tests.simulation.database import Database
from tests.simulation.history import Answered, Asked, Erred, Followed, History, Leaked, Left, Listed, Registered, Told
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.replica import Connection, Lost, Place

CALL_S = 6.0
"""How long a client waits for an answer: longer than a blocking send takes."""

SILENCE_S = 7.0
"""How long a client waits for the next item of a stream; keep-alives come more often."""


BRANCHES = 0.08
"""The part of the scripts that have branches."""

MEMORIES = 0.3
"""The part of the scripts that count in the agent's memory."""

HIRED_MEMORIES = 0.8
"""The same of those that workers play, which are few."""

STEPS = 0.4
"""The part of the scripts that have steps."""


class Refusal(Exception):
    """The server refused a call for good."""


class Clients:
    """The world of a simulation's clients: the replicas they may call, and the tasks that exist."""

    def __init__(
        self, loop: SimulatedLoop, places: Sequence[Place], history: History, seed: object, database: Database
    ) -> None:
        self.loop = loop
        self.places = places
        self.history = history
        self.tasks: list[tuple[str, str, str]] = []
        """Owner, agent and id of each task that a client knows."""
        self.unfinished: dict[str, str] = {}
        """The asyncio tasks of the clients."""
        self.seed = seed
        self.random = Random(f"clients {seed}")
        self.agents = sorted({agent for place in places for agent in place.serves})
        self.talkative = self.random.random() < 0.5
        """Whether clients say much unasked, to agents that ask much."""
        self.lost: set[str] = set()
        """The tasks that the database has lost."""
        self.database = database
        self.rewinds = 0
        """How often it has lost something."""
        self._ids = 0

    def rewound(self, lost: Collection[str]) -> None:
        """Note that the database has lost its last commits, and these tasks with them."""
        self.lost.update(lost)
        self.rewinds += 1

    def is_gone(self, task_id: str) -> bool:
        """Whether the database has lost or deleted a task."""
        return task_id in self.lost or task_id not in self.database.rows

    def message_id(self) -> str:
        """A UUID that is the same in every run."""
        self._ids += 1
        return f"00000000-0000-4000-8000-{self._ids:012x}"

    def stream_number(self) -> int:
        """A number for a stream."""
        self._ids += 1
        return self._ids


class Client:
    """One caller, with a number of jobs: each is a task from its first message to its end."""

    def __init__(self, name: str, shared: Clients, jobs: int) -> None:
        self.name = name
        self.process = Process(name)
        self.shared = shared
        self.random = Random(f"{name} {shared.random.random()}")
        self.branches = Random(f"branches {shared.seed} {name}")
        self.steps = Random(f"steps {shared.seed} {name}")
        self.memories = Random(f"memories {shared.seed} {name}")
        self.hired_memories = Random(f"memories of workers {shared.seed} {name}")
        self.history = shared.history
        self.loop = shared.loop
        shared.unfinished[name] = "begins"
        self.loop.spawn(self.process, self._work(jobs))

    async def _work(self, jobs: int) -> None:
        await asyncio.gather(*(self._job(f"{self.name}.{number}") for number in range(jobs)))
        del self.shared.unfinished[self.name]

    async def _job(self, name: str) -> None:
        random, unfinished = self.random, self.shared.unfinished
        unfinished[name] = "waits"
        await asyncio.sleep(random.random() * 8)
        agents = self.shared.agents
        agent = random.choice(agents)
        if ANSWERS.get(agent) is True or (agent in ANSWERS and random.random() < 0.5):
            script = write_answer(random)
        else:
            # A worker that waits for another worker could wait for ever.
            given = [name for name in agents if name != HIRED] if agent == HIRED else agents
            script = write_script(random, given, asks=0.4 if self.shared.talkative else 0.18)
            if agent not in (HIRED, *ANSWERS) and self.branches.random() < BRANCHES:
                script = write_branches(self.branches, given)
            if agent not in (HIRED, *ANSWERS) and self.steps.random() < STEPS:
                script = add_steps(self.steps, script)
            if agent not in (HIRED, *ANSWERS) and self.memories.random() < MEMORIES:
                script = add_steps(self.memories, script, "m")
            if agent == HIRED and self.hired_memories.random() < HIRED_MEMORIES:
                script = add_steps(self.hired_memories, script, "m")
        job = Job(self, name, agent, script)
        await job.run()
        del unfinished[name]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def place(self, agent: str) -> Place:
        """Some replica. Clients mostly go to one that runs and serves the agent."""
        places: Sequence[Place] = [place for place in self.shared.places if place.running] or self.shared.places
        serving = [place for place in places if agent in place.serves]
        if serving and self.random.random() < 0.9:
            places = serving
        return self.random.choice(places)

    def connect(
        self, what: str, agent: str, operation: Operation, task_id: str = "", *, after: int | None = None, stream: bool
    ) -> Connection:
        """Send a call to some replica."""
        place = self.place(agent)
        self.history.add(Asked(self.name, place.process.name, what, task_id))
        call = Call(
            operation=operation,
            principal=Principal(self.name),
            agent=agent,
            dialect="1.0",
            mount="/",
            after=None if after is None else str(after),
        )
        return place.connect(self.process, call, stream=stream)

    async def ask(self, what: str, agent: str, operation: Operation, task_id: str = "") -> Any:
        """Call until there is an answer. Raises A2AError, but for Unavailable."""
        unfinished = self.shared.unfinished
        while True:
            unfinished[f"{self.name} {what}"] = task_id
            connection = self.connect(what, agent, operation, task_id, stream=False)
            try:
                (answer,) = await connection.receive(CALL_S)
                if not isinstance(answer, Exception):
                    unfinished.pop(f"{self.name} {what}", None)
                    return answer
                if isinstance(answer, A2AError) and not isinstance(answer, Unavailable):
                    unfinished.pop(f"{self.name} {what}", None)
                    raise answer
                if not isinstance(answer, Unavailable):
                    self.erred(what, task_id, answer)
                self.history.add(Erred(self.name, what, task_id, str(answer), True))
            except Lost as lost:
                self.history.add(Erred(self.name, what, task_id, str(lost), True))
            finally:
                connection.close()
            await asyncio.sleep(0.05 + self.random.random() * 0.5)

    def erred(self, what: str, task_id: str, error: Exception) -> None:
        """Note an error that nothing explains, unless the database has lost or deleted the task."""
        possible = isinstance(error, TaskNotFound) and self.shared.is_gone(task_id)
        self.history.add(Erred(self.name, what, task_id, f"{type(error).__name__}: {error}", possible))


class Crowd(Client):
    """A caller that gives the workers everything at once, more than they can do."""

    async def _job(self, name: str) -> None:
        self.shared.unfinished[name] = "waits in the crowd"
        await asyncio.sleep(1.0 + self.random.random() * 0.2)
        await Job(self, name, HIRED, self.random.choice(("c1", "s40 c1", "c2 s10", "s150"))).run()
        del self.shared.unfinished[name]


class Waverer(Client):
    """A caller that wants long work, and soon does not want it any more."""

    async def _job(self, name: str) -> None:
        self.shared.unfinished[name] = "wavers"
        await asyncio.sleep(1.0 + self.random.random() * 4)
        agent = self.random.choice([agent for agent in self.shared.agents if agent not in ANSWERS])
        await Job(self, name, agent, self.random.choice(("s400 c1", "c1 s400", "a s400"))).waver()
        del self.shared.unfinished[name]


class Job:
    """A task of a client, from its first message to its end."""

    def __init__(self, client: Client, name: str, agent: str, script: str) -> None:
        self.client = client
        self.name = name
        self.agent = agent
        self.script = script
        self.task_id = ""
        self.random = client.random
        self.history = client.history
        self.shared = client.shared
        self.loop = client.loop
        self._answered: set[str] = set()
        self._leaves_unanswered = self.random.random() < 0.1 and HIRED not in self.shared.agents  # a worker would wait
        self._webhook = self.random.random() < 0.3 and agent not in ANSWERS
        self._ended = False
        self._rewinds = 0

    async def run(self) -> None:
        """Send, and then do something about the task until it has ended, or waits for an answer that never comes."""
        random = self.random
        message = Message(
            message_id=self.shared.message_id(),
            role=Role.USER,
            parts=(Part(text=self.script),),
            metadata={"agent": self.agent},
        )
        push = PushConfig(url="https://hooks.example/in", id="hook") if self._webhook else None
        if random.random() < 0.4:
            await self._send_and_stream(message, push)
        else:
            await self._send(message, push, wait=random.random() < 0.5)
        if not self.task_id:
            return
        self.shared.tasks.append((self.client.name, self.agent, self.task_id))
        others = [self._meddle() for _ in range(random.randrange(5 if self.shared.talkative else 3))]
        await asyncio.gather(self._follow() if random.random() < 0.7 else self._poll(), *others)

    async def waver(self) -> None:
        """Send, and cancel the task a little later, wherever it runs."""
        self._webhook = False
        parts = (Part(text=self.script),)
        await self._send(
            Message(message_id=self.shared.message_id(), role=Role.USER, parts=parts, metadata={"agent": self.agent}),
            None,
            wait=False,
        )
        await asyncio.sleep(0.2 + self.random.random())
        await self._cancel()

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _send(self, message: Message, push: PushConfig | None, *, wait: bool) -> None:
        asked_s, operation = (
            self.loop.time(),
            SendMessage(message=message, return_immediately=not wait, push_config=push),
        )
        try:
            record = await self.client.ask("send", self.agent, operation, message.task_id or "")
        except UnsupportedOperation as error:
            self._refused("send", message, error)
        except A2AError as error:
            self.client.erred("send", message.task_id or "", error)
        else:
            what = "send" if message.task_id is None else "answer"
            self._take(record, what, asked_s, message.message_id, waited=wait)

    def _refused(self, what: str, message: Message, error: Exception) -> None:
        """A message to a task that has ended is refused; anything else is a fault."""
        if message.task_id is None:
            self.client.erred(what, "", error)
        else:
            self.history.add(Erred(self.client.name, what, message.task_id, str(error), True))

    def _take(
        self, record: object, what: str, asked_s: float, message_id: str = "", *, waited: bool = False
    ) -> TaskState | None:
        """Note the task as an answer shows it, or the Message."""
        if isinstance(record, Message) and self.agent in ANSWERS and not self.task_id:
            text = "".join(part.text or "" for part in record.parts)
            self.history.add(Answered(self.client.name, message_id, self.script, record.message_id, text))
            return None
        if not isinstance(record, Record):
            self.client.erred(what, self.task_id, TypeError(f"the answer is {record!r}"))
            return None
        if not self.task_id:
            self.task_id = record.head.id
            if self._webhook:
                self.history.add(Registered(self.task_id, "hook", asked_s))
        told = Told(self.client.name, what, record.head.id, asked_s, record.seq, record.state, message_id, waited)
        self.history.add(told)
        self._look(record.status.state, record.status.message)
        return record.state

    async def _send_and_stream(self, message: Message, push: PushConfig | None) -> None:
        """Send a message and follow the task; after a failure, send it again."""
        operation = StreamMessage(message=message, push_config=push)
        while True:
            self.shared.unfinished[self.name] = "streams"
            asked_s = self.loop.time()
            connection = self.client.connect("stream", self.agent, operation, stream=True)
            try:
                items = await connection.receive(CALL_S)
                if isinstance(items, Unavailable):
                    raise Lost(str(items))
                if isinstance(items, Exception):
                    self.client.erred("stream", "", items)
                    return
                if items is None:
                    self.client.erred("stream", "", TypeError("the stream is empty"))
                    return
                first = items[0]
                if isinstance(first, Direct):
                    self._take(first.message, "send", asked_s, message.message_id)
                    return
                if not isinstance(first, Snapshot):
                    self.client.erred("stream", "", TypeError("the stream does not begin with the task"))
                    return
                self._take(first.record, "send", asked_s, message.message_id)
                await self._read(connection, items, self.shared.stream_number(), asked_s)
                return
            except Lost as lost:
                self.history.add(Erred(self.client.name, "stream", self.task_id, str(lost), True))
                if self.task_id:
                    return
            except Exception as error:  # noqa: BLE001  no other error is to come out of a stream
                self.client.erred("stream", self.task_id, error)
                return
            finally:
                connection.close()
            await asyncio.sleep(0.05 + self.random.random() * 0.5)

    # -- following -----------------------------------------------------------------------------------------------------

    async def _read(self, connection: Connection, items: Any, stream: int, asked_s: float) -> int:
        """Read a stream to its end, or for a while. Returns the last seq."""
        try:
            return await self._read_on(connection, items, stream, asked_s)
        finally:
            self.history.add(Left(self.client.name, stream, self.task_id))

    async def _read_on(self, connection: Connection, items: Any, stream: int, asked_s: float) -> int:
        seq, patience = 0, self.random.randrange(1, 30)
        while isinstance(items, tuple):
            for item in items:
                if isinstance(item, Snapshot):
                    seq, event, state = item.record.seq, None, item.record.state
                    self._look(item.record.status.state, item.record.status.message)
                else:
                    assert isinstance(item, Logged)
                    seq, event, state = item.seq, item.event, None
                    if isinstance(item.event, StatusChanged):
                        self._look(item.event.state, item.event.message)
                self.history.add(Followed(self.client.name, stream, self.task_id, asked_s, seq, event, state))
            patience -= 1
            if self._ended or not patience:
                return seq
            items = await connection.receive(SILENCE_S)
        if isinstance(items, Exception) and not isinstance(items, Unavailable):
            raise items
        return seq

    async def _follow(self) -> None:
        """Follow the task to its end, from one replica to the next."""
        seq, stream, rewinds = 0, self.shared.stream_number(), self.shared.rewinds
        while not self._ended:
            self.shared.unfinished[self.name] = f"follows {self.task_id}"
            asked_s = self.loop.time()
            after = seq if seq and self.random.random() < 0.8 else None
            if rewinds != self.shared.rewinds:  # its place and its answer may be lost, which no event tells
                after, seq = None, 0
            if after is None:
                stream, rewinds = self.shared.stream_number(), self.shared.rewinds
            connection = self.client.connect(
                "subscribe", self.agent, Subscribe(id=self.task_id), self.task_id, after=after, stream=True
            )
            try:
                items = await connection.receive(CALL_S)
                if isinstance(items, UnsupportedOperation):
                    await self._get()
                    continue
                seq = await self._read(connection, items, stream, asked_s) or seq
            except Lost as lost:
                self.history.add(Erred(self.client.name, "subscribe", self.task_id, str(lost), True))
                seq, stream = 0, self.shared.stream_number()
            except Exception as error:  # noqa: BLE001  no other error is to come out of a stream
                self.client.erred("subscribe", self.task_id, error)
                return
            finally:
                connection.close()
            if self._given_up:
                return
            await asyncio.sleep(0.02 + self.random.random() * 0.3)

    async def _poll(self) -> None:
        """Read the task again and again."""
        while not (self._ended or self._given_up):
            self.shared.unfinished[self.name] = f"reads {self.task_id}"
            await self._get()
            await asyncio.sleep(0.1 + self.random.random())

    async def _get(self) -> None:
        asked_s = self.loop.time()
        try:
            record = await self.client.ask("get", self.agent, GetTask(id=self.task_id), self.task_id)
        except A2AError as error:
            self.client.erred("get", self.task_id, error)
            self._ended = True
        else:
            self._take(record, "get", asked_s)

    @property
    def _given_up(self) -> bool:
        return self._leaves_unanswered and bool(self._answered)

    def _look(self, state: TaskState, said: Message | None) -> None:
        """React to a status: answer questions, and note the end. The database may have lost an earlier answer."""
        if self._rewinds != self.shared.rewinds:
            self._rewinds = self.shared.rewinds
            self._answered.clear()
        if state in TERMINAL:
            self._ended = True
        elif state in INTERRUPTED and said is not None and said.message_id not in self._answered:
            self._answered.add(said.message_id)
            if not self._leaves_unanswered:
                self.loop.spawn(self.client.process, self._answer(f"a{len(self._answered)}"))

    async def _answer(self, text: str) -> None:
        name = f"{self.name} answers {text}"
        self.shared.unfinished[name] = self.task_id
        await asyncio.sleep(self.random.random() * 0.5)
        await self._say(text)
        del self.shared.unfinished[name]

    async def _say(self, text: str) -> None:
        message = Message(
            message_id=self.shared.message_id(), role=Role.USER, parts=(Part(text=text),), task_id=self.task_id
        )
        await self._send(message, None, wait=self.random.random() < 0.3)

    # -- whatever else a client does -----------------------------------------------------------------------------------

    async def _meddle(self) -> None:
        """Say something unasked, cancel, list, read, or look at somebody else's task."""
        random = self.random
        await asyncio.sleep(random.random() ** 3 * 5)
        chance = random.random()
        if chance < (0.7 if self.shared.talkative else 0.3) and "a" in self.script.split():
            await self._say(f"b{random.randrange(100)}")
        elif chance < 0.52:
            await self._cancel()
        elif chance < 0.57:
            await self._register()
        elif chance < 0.65:
            await self._list()
        elif chance < 0.8:
            await self._get()
        else:
            await self._spy()

    async def _cancel(self) -> None:
        asked_s = self.loop.time()
        try:
            record = await self.client.ask("cancel", self.agent, CancelTask(id=self.task_id), self.task_id)
        except TaskNotCancelable as error:
            self.history.add(Erred(self.client.name, "cancel", self.task_id, str(error), True))
        except A2AError as error:
            self.client.erred("cancel", self.task_id, error)
        else:
            state = self._take(record, "cancel", asked_s)
            if state is not TaskState.CANCELED:
                self.client.erred("cancel", self.task_id, ValueError(f"the task is {state} after it"))

    async def _register(self) -> None:
        """Register a webhook while the task is under way, or afterwards, at any replica."""
        asked_s = self.loop.time()
        push = PushConfig(url="https://hooks.example/late", id="late", task_id=self.task_id)
        try:
            await self.client.ask("register", self.agent, CreatePushConfig(config=push), self.task_id)
        except A2AError as error:
            self.client.erred("register", self.task_id, error)
        else:
            self.history.add(Registered(self.task_id, "late", asked_s))

    async def _list(self) -> None:
        asked_s = self.loop.time()
        try:
            page = await self.client.ask("list", self.agent, ListTasks(page_size=100))
        except A2AError as error:
            self.client.erred("list", "", error)
            return
        assert isinstance(page, TaskPage)
        self.history.add(
            Listed(
                self.client.name,
                asked_s,
                self.agent,
                tuple(record.head.id for record in page.records),
                tuple(record.head.owner for record in page.records),
            )
        )

    async def _spy(self) -> None:
        """Try somebody else's task, or one's own under another agent's name."""
        random, name = self.random, self.client.name
        foreign = [(agent, task_id) for owner, agent, task_id in self.shared.tasks if owner != name]
        if foreign and random.random() < 0.7:
            agent, task_id = random.choice(foreign)
        else:
            agent, task_id = random.choice([agent for agent in self.shared.agents if agent != self.agent]), self.task_id
        said = Message(
            message_id=self.shared.message_id(), role=Role.USER, parts=(Part(text="spying"),), task_id=task_id
        )
        what, operation = random.choice(
            (("get", GetTask(id=task_id)), ("cancel", CancelTask(id=task_id)), ("send", SendMessage(message=said)))
        )
        try:
            await self.client.ask(f"spy ({what})", agent, operation)
        except TaskNotFound:
            return
        except A2AError as error:
            self.client.erred(f"spy ({what})", task_id, error)
        else:
            self.history.add(Leaked(name, what, task_id))


def write_answer(random: Random) -> str:
    """A random script whose work fits into a Message, if it is done in time."""
    steps = [random.choice((f"c{random.randrange(1, 5)}", f"s{random.choice((1, 10, 40))}")) for _ in range(4)]
    return " ".join(steps[: random.randrange(1, 5)])


def write_script(random: Random, agents: Sequence[str], depth: int = 0, asks: float = 0.18) -> str:
    """A random script: see `tests.simulation.agents`."""
    steps: list[str] = []
    if random.random() < 0.15:
        steps.append(f"x{random.choice((20, 300, 600))}")
    for _ in range(random.randrange(1, 6 - 2 * depth)):
        chance = random.random() if random.random() > asks - 0.18 else 0.75
        if chance < 0.35:
            steps.append(f"c{random.randrange(1, 5)}")
        elif chance < 0.6:
            steps.append(f"s{random.choice((1, 10, 40, 150, 400))}")
        elif chance < 0.7:
            steps.append("p")
        elif chance < 0.7 + asks or depth:
            steps.append("a")
        else:
            inner = write_script(random, agents, depth + 1, asks).replace(" ", ",")
            how, agent = random.choice("ddD"), random.choice(agents)
            # A worker whose question nobody answers would keep others waiting.
            steps.append(f"{'d' if agent == HIRED else how}:{agent}:{inner}")
    if random.random() < 0.06:
        steps.append(random.choice("fr"))
    return " ".join(steps) or "c1"


def add_steps(random: Random, script: str, step: str = "t") -> str:
    """The script with more steps of a kind at random places, in its branches too; beside `t` it sleeps."""
    if script.startswith("b/"):
        branches = [
            add_steps(random, branch.replace("+", " "), step).replace(" ", "+") for branch in script[2:].split("/")
        ]
        return f"b/{'/'.join(branches)}"
    steps = script.split()
    for _ in range(random.randrange(1, 4)):
        rests = f"{random.choice('zzZ')}{random.choice((10, 60, 150))}" if step == "t" else step
        steps.insert(random.randrange(len(steps) + 1), random.choice((step, step, rests)))
    return " ".join(steps)


def write_branches(random: Random, agents: Sequence[str]) -> str:
    """A random script with three branches, each of which says, asks and delegates something."""
    branches: list[str] = []
    for _ in range(3):
        steps = ["c1", "a", f"s{random.choice((1, 10, 40))}"]
        steps += random.choice((["c2"], ["a"], ["s40", "a"]))
        if random.random() < 0.6:
            inner = random.choice(("c1", "s40,c1", "a", "s10,a,c1"))
            steps.append(f"{random.choice('dD')}:{random.choice(agents)}:{inner}")
        random.shuffle(steps)
        branches.append("+".join(steps))
    return f"b/{'/'.join(branches)}"
