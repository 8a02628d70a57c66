"""The interface of agents: a Runner works on tasks, a Run is its handle on one of them.

Invariant: an agent knows nothing of streams, and nothing of the engine beyond this module. All that it says is a word
(`engine.words`) by the time that a Sink has it.
"""

from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.bounds import Bounds, flag, integer
from dragoman.engine.bounds import name as check_name
from dragoman.engine.state_space import StateSpace
from dragoman.engine.switches import Switches
from dragoman.engine.usage_reports import admit_usage
from dragoman.engine.words import WORKING, Ask, End, Note, Say, Sleep, Step, StepDone, Waiting, Working
from dragoman.engine.words import Delegation as Delegation
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, AgentOffline
from dragoman.model.events import ArtifactChunk, Delegated, Stepped
from dragoman.model.headers import CREDENTIALS, SUBJECT, RequestHeaders, TaskHeaders
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import CompleteTask, UpdateStatus
from dragoman.model.principal import Principal
from dragoman.model.task import TERMINAL, Record, TaskHead, TaskState, Usage
from dragoman.model.title import TITLE_NOTE, title_line
from dragoman.store.state import StateKind
from dragoman.store.worker_leases import WorkerLease
from dragoman.telemetry.counts import UpstreamCalls
from dragoman.telemetry.job_group import JobGroup


class Reject(Exception):
    """Raised by an agent to reject the task. The caller reads the text."""


class Ended(Exception):
    """Raised by a runner to end the task in `state`, which is terminal, with `parts` for the caller.

    `reason` is for programs. `retry_after_s` says that nothing was done, because the agent elsewhere takes no work at
    present, and after how many seconds it may. The call that made the task is then refused with this delay and
    forgotten: a repeat of it makes another task.
    """

    def __init__(
        self, state: TaskState, parts: Sequence[Part] = (), reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(state.value)
        self.state = state
        self.parts = tuple(parts)
        self.reason = reason
        self.retry_after_s = retry_after_s

    def check(self, bounds: Bounds) -> End:
        """Return the end as it is written. Raises TypeError or ValueError, which names the argument."""
        return End(self.state, self.parts, self.reason, self.retry_after_s).check(bounds)


class Replied(Ended):
    """Raised by a runner to answer with a message of `parts`. A task, if there is one, is completed with them."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__(TaskState.COMPLETED, parts)


class Unreadable(Exception):
    """The bytes of a file part cannot be read; the message says why."""


class DelegationFailed(Exception):
    """The other agent did not complete the task: it failed, rejected, was canceled, asks, or could not be reached.

    `task_id` is empty if no task was made. `text` is the agent's last message; `delegated` holds the whole outcome.
    """

    def __init__(self, delegated: Delegated) -> None:
        self.delegated = delegated
        self.agent = delegated.agent
        self.state = delegated.state
        self.task_id = delegated.task_id
        self.text = delegated.message.text if delegated.message is not None else ""
        word = delegated.state.value.removeprefix("TASK_STATE_").lower().replace("_", "-")
        task = f" (task {self.task_id})" if self.task_id else ""
        super().__init__(f"agent {self.agent}: {word}{task}" + (f": {self.text}" if self.text else ""))


def came_to(delegated: Delegated, order: Delegation) -> Delegated:
    """Return the outcome of a delegation. Raises DelegationFailed unless the task was completed, or detached."""
    if delegated.state is TaskState.COMPLETED or (order.detach and delegated.task_id):
        return delegated
    raise DelegationFailed(delegated)


Hear = Callable[[ArtifactChunk], Awaitable[None]]
"""Receives the artifact chunks of a delegated task as they arrive."""

Execute = Callable[[str], Awaitable[StepDone]]
"""Executes a step. It gets the key of the step, which is the same whoever executes it: for the other side, to tell a
repetition. An exception that it raises is not recorded.
"""


class Past(Protocol):
    """The past that the agent of a run may read, beside its task, which `head` names."""

    async def references(self, head: TaskHead, task_ids: Sequence[str]) -> tuple[Record, ...]:
        """The named tasks that exist and are the caller's own, in the order named."""
        ...

    async def messages(self, head: TaskHead, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context, oldest first, without those of this task."""
        ...

    async def note(self, head: TaskHead) -> dict[str, str]:
        """The last note of an earlier task of the context; empty if there is none."""
        ...

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part. Raises Unreadable."""
        ...


class Sink(Protocol):
    """Takes the words of one run, in their order, and answers those that have an answer.

    It gets words that have been checked. There are four: a task (`engine.runs.task_sink`), a Message
    (`engine.runs.message_sink`), a server from which a worker leased the task (`agents.worker.lessee`), and memory
    (`testing.run`).
    """

    @property
    def canceled(self) -> bool:
        """See `Run.canceled`."""
        ...

    @property
    def headers(self) -> TaskHeaders | None:
        """The headers that the agent is given of the requests with the newest messages; None if they are not here."""
        ...

    @property
    def gives_headers(self) -> bool:
        """Whether the agent is given any headers, if a request has them."""
        ...

    @property
    def lineage(self) -> tuple[str, ...]:
        """See `Run.lineage`."""
        ...

    @property
    def record(self) -> Record:
        """The task with everything that the sink has taken so far."""
        ...

    @property
    def notes(self) -> Mapping[str, str]:
        """See `Run.notes`."""
        ...

    def check(self) -> None:
        """Raises CancelledError once nothing that the run says counts any more, before its words are looked at."""
        ...

    def say(self, word: Say | ArtifactChunk, weight: int = 0) -> Awaitable[None] | None:
        """Take what the caller sees. `weight` is its size as `Bounds.weigh_plain` found it; 0: not known.

        Returns None if the word is taken; else what has to be awaited at once, until it is taken and there is room for
        more.
        """
        ...

    def mark(self, word: Working | Waiting | Note | Usage) -> None:
        """Take what concerns the task as a whole. It never waits."""
        ...

    async def ask(self, word: Ask) -> Message:
        """Take a question, and wait for the caller's answer."""
        ...

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Take an order, and wait for its outcome, whatever that is."""
        ...

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """Return the recorded outcome of a step; or execute it, record its outcome, and return that once it is
        committed. A `soon` step is not waited for."""
        ...

    async def sleep(self, word: Sleep) -> None:
        """Return when the sleep is over. A long one ends the run, and a later run returns from it."""
        ...

    async def patched(self, name: str) -> bool:
        """Whether the task is to go the way of a change of its agent's code. It is, unless a run from before the change
        has come further than here. The answer is the same in every run of the task."""
        ...

    async def written(self) -> None:
        """Wait until everything taken so far is committed."""
        ...

    def landing(self, done: "Future[None]") -> None:
        """Set the result of `done` when the write now under way is committed; at once if there is none."""
        ...

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """The metadata of the request that brought an answer of the caller."""
        ...

    async def state(self, kind: StateKind, *, wide: bool = False, shared: bool = False) -> StateSpace | None:
        """The stored state of the conversation, or of the caller if it is `wide`; None if the run has none.

        A wide one that is `shared` is that of all callers, and so is each where the agent's memory is shared. A run
        that may still answer with a Message becomes a task first. One of an agent that makes no task has none.
        """
        ...

    async def past(self, *, context: bool = False) -> Past:
        """The past that the agent may read. With `context` that is the conversation, which has tasks alone: a run that
        may still answer with a Message becomes one of them first."""
        ...


class Run:
    """One execution of an agent on a task, as the agent sees it.

    Its methods check what they are given, make words of it (`engine.words`), and hand those to the `sink`. An argument
    beyond the `bounds` raises TypeError or ValueError, which names it, and nothing else happens. While recorded answers
    are replayed after a restart, emitted events are dropped and `ask` returns the recorded answer; the agent cannot
    tell. Every method raises CancelledError once the run has been fenced.

    `message` made the task, also when this run resumes it after a restart. `present` is that message until a question
    is answered; then it is the latest answer. `epoch` is the task's when the run began: 1
    if nobody has worked on it before. `traceparent` is the trace that the agent's own calls continue (W3C Trace
    Context); None if nobody traces.
    """

    __slots__ = (
        "bounds",
        "epoch",
        "extensions",
        "head",
        "message",
        "present",
        "principal",
        "sink",
        "skill",
        "skills",
        "traceparent",
    )

    def __init__(
        self,
        head: TaskHead,
        message: Message,
        sink: Sink,
        bounds: Bounds,
        epoch: int = 1,
        principal: Principal | None = None,
        traceparent: str | None = None,
    ) -> None:
        self.head = head
        self.message = self.present = message
        self.sink = sink
        self.bounds = bounds
        self.epoch = epoch
        self.principal = principal or Principal(head.owner)
        self.traceparent = traceparent
        self.skill = head.skill
        self.skills = head.skills
        self.extensions = head.extensions

    def redirect(self, sink: Sink) -> None:
        """Speak to another sink from now on, which has taken every word so far: what was a Message becomes a task."""
        self.sink = sink

    # -- what it knows -------------------------------------------------------------------------------------------------

    @property
    def canceled(self) -> bool:
        """Whether the task itself is to stop. A run canceled while this is False goes on elsewhere, or later."""
        return self.sink.canceled

    @property
    def shown(self) -> RequestHeaders | None:
        """The caller's latest credentials, if the agent is given them; None if they are not here, or there were none.

        They are kept only until the process ends.
        """
        kept = self.sink.headers
        return None if kept is None else kept.newest.credentials

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The listed headers of the request that brought the `present` message, by their names in lower case.

        None if they are lost: they are never stored, so that a run that goes on elsewhere or after a restart has none.
        Raises RuntimeError if the agent lists no headers.
        """
        if not self.sink.gives_headers:
            raise RuntimeError(NO_HEADERS_LISTED.format(self.head.agent))
        kept = self.sink.headers
        request = None if kept is None else kept.find_request(self.present.message_id)
        return None if request is None else request.headers

    @property
    def lineage(self) -> tuple[str, ...]:
        """The agents through which this task came, this one last; sent to other servers as LINEAGE in the metadata."""
        return self.sink.lineage

    @property
    def record(self) -> Record:
        """The task with everything written and emitted so far."""
        return self.sink.record

    @property
    def notes(self) -> Mapping[str, str]:
        """The newest notes of the task, by their names; those of `record`, which takes longer to put together."""
        return self.sink.notes

    async def noted(self) -> dict[str, str]:
        """The last note of an earlier task of the same context; empty if there is none."""
        return await (await self.sink.past()).note(self.head)

    async def references(self) -> tuple[Record, ...]:
        """The caller's own tasks among those that the message names in `referenceTaskIds`."""
        return await (await self.sink.past()).references(self.head, self.message.reference_task_ids)

    async def open_tasks(self, task_ids: Sequence[str]) -> set[str]:
        """Those among tasks of the same caller that have not ended."""
        if not task_ids:
            return set()
        found = await (await self.sink.past()).references(self.head, task_ids)
        return {record.head.id for record in found if record.state not in TERMINAL}

    async def state(self, kind: StateKind, *, wide: bool = False, shared: bool = False) -> StateSpace | None:
        """A scope of the agent's stored state: see `Sink.state`."""
        self.sink.check()
        return await self.sink.state(kind, wide=wide, shared=shared)

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """The metadata of the request that brought a message of this task: the first one, or an answer."""
        if message.message_id == self.message.message_id:
            return self.head.metadata
        return await self.sink.request_metadata(message)

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context, oldest first, with agents' answers but without this task's."""
        limit = integer("limit", limit)
        return await (await self.sink.past(context=True)).messages(self.head, limit)

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part. A `url` on another host is fetched with care. Raises Unreadable."""
        self.sink.check()
        return await (await self.sink.past()).read(part)

    # -- what it says --------------------------------------------------------------------------------------------------

    async def status(
        self, parts: Sequence[Part], *, progress: tuple[int, int] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report while the task is `working`. Returns when the event is in the run's buffer."""
        self.sink.check()
        waits = self.sink.say(Say(parts, progress, metadata).check(self.bounds))  # type: ignore[arg-type]  # a list, too
        if waits is not None:
            await waits

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Emit an artifact or a chunk of one. Returns when it is in the run's buffer (256 events or 1 MB).

        The first chunk of an artifact is never an append, whatever `append` says.
        """
        waits = self.emit(artifact, append=append, last_chunk=last_chunk)
        if waits is not None:
            await waits

    def emit(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> Awaitable[None] | None:
        """As `artifact`. Returns None if it is in the buffer, else what has to be awaited at once."""
        weight = self.bounds.weigh_plain(artifact)
        if not weight:
            self.sink.check()
            artifact = self.bounds.artifact(artifact)
        if not append.__class__ is last_chunk.__class__ is bool:
            append, last_chunk = flag("append", append), flag("last_chunk", last_chunk)  # type: ignore[unreachable]
        return self.sink.say(ArtifactChunk(artifact, append, last_chunk), weight)

    def working(self) -> None:
        """Report that the task has been taken on. Puts it into `working`, if it is not yet, and lets streams open."""
        self.sink.mark(WORKING)

    def waiting(self, parts: Sequence[Part]) -> None:
        """Tell the caller why the task makes no progress at present. Its state does not change."""
        self.sink.check()
        self.sink.mark(Waiting(tuple(parts)).check(self.bounds))

    def usage(self, usage: Usage) -> bool:
        """Add to the tokens used; written with the next status.

        Returns whether they count. A report that is out of bounds does not: it is logged, and counted as uncertain.
        """
        admitted = admit_usage(usage, self.bounds, self.head)
        self.sink.mark(admitted)
        return not any(model.uncertain for model in admitted.models)

    def note(self, /, **note: str) -> None:
        """Keep a note for a later run of the task, which reads it from `record.note`. Callers never see it."""
        self.sink.check()
        self.sink.mark(Note(self.bounds.note(note)))

    def note_soon(self, /, **note: str) -> None:
        """As `note`, but it waits briefly for another event, to be written with it."""
        self.sink.check()
        self.sink.mark(Note(self.bounds.note(note), soon=True))

    def title(self, text: str) -> None:
        """Name the task in one line, for operators: the last title counts. It is written with the next event, or soon.

        Callers never see it. Raises ValueError if nothing in `text` can be seen.
        """
        self.sink.check()
        line = title_line(self.bounds.text("title", text))
        if not line:
            raise ValueError("title has nothing that can be seen")
        self.sink.mark(Note({TITLE_NOTE: line}, soon=True))

    async def written(self) -> None:
        """Wait until everything emitted so far is committed."""
        await self.sink.written()

    def landing(self, done: "Future[None]") -> None:
        """Set the result of `done` when the write now under way is committed; at once if there is none.

        Events emitted before then wait for that write. An agent that waits too can emit fewer and larger pieces.
        """
        self.sink.landing(done)

    async def ask(self, parts: Sequence[Part], *, auth: bool = False, place: str | None = None) -> Message:
        """Put the task into `input-required` (or `auth-required`) and wait for the caller's next message.

        `place`: see `engine.words.Ask`.
        """
        self.sink.check()
        word = Ask(parts, auth, place=place).check(self.bounds)  # type: ignore[arg-type]  # a list, too
        self.present = await self.sink.ask(word)
        return self.present

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Give a task to another agent of this server, on behalf of the same caller, and wait for its outcome.

        A later run of this task does not delegate twice: it gets the recorded outcome, or waits for the task that has
        none yet. Raises DelegationFailed unless the task was completed.
        """
        self.sink.check()
        order = order.check(self.bounds, self.message.parts)
        return came_to(await self.sink.delegate(order, hear), order)

    async def patched(self, name: str) -> bool:
        """Whether the task is to go the way of a change of its agent's code: see `Sink.patched`."""
        self.sink.check()
        said = check_name("name", name)
        if not said:
            raise ValueError("name is empty: give the change a name")
        return await self.sink.patched(said)

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """Return the recorded outcome of a step, or execute it and record its outcome: see `Sink.step`.

        Executed at least once, recorded once: a run never executes a step that its task's log holds. A process that was
        paused for longer than its lease may do so; its outcome is refused then.
        """
        self.sink.check()
        return await self.sink.step(word.check(self.bounds), execute)

    async def sleep(self, word: Sleep) -> None:
        """Let nobody work on the task for a time, which is never cut short by a restart: see `Sink.sleep`.

        A long sleep ends the run: its agent is cancelled, and a later run begins when the task wakes.
        """
        self.sink.check()
        await self.sink.sleep(word.check(self.bounds))


NO_HEADERS_LISTED = (
    "ctx.headers: agent {!r} lists no headers of its callers' requests: give Agent(…, headers=[…]) their names, or the "
    "agent's table of the configuration; a test may give run(…, headers={{…}})"
)

DirectMode = bool | Literal["auto"]
"""Whether an agent answers with a Message instead of a task."""

DIRECT_WAIT_S = 1.0
"""How long a run may answer with a Message before it becomes a task. A caller sees nothing of the run until then."""


MemoryReach = Literal["caller", "shared"]
"""Whom the state of an agent is for that outlives a conversation: each caller apart, or all of them."""

StepUncertain = Literal["fail", "ask"]
"""The way in which a task goes on after a crash in a step that must not be executed twice."""

RunnerKind = Literal["python", "worker", "upstream", "other"]
"""Where an agent's code is, for operators. A model, a program and a class of one's own are `other`."""


class Traits(Struct, frozen=True, kw_only=True):
    """The facts about a runner that hold for each of its runs, from the beginning of the run to its end.

    A `direct` runner answers with one Message instead of a task. With "auto" it answers with a Message, or makes a task
    at the first thing that a Message cannot hold, or after `direct_wait_s`. A `restartable` one may be run again from
    the start after a crash. A `one_message` runner takes no further message while it works. A run that works for longer
    than `deadline_s` at a stretch is stopped, and its task fails; the time in which it waits for an answer does not
    count. Where nobody knows whether a step was executed that must not be executed twice (`step_uncertain`), the task
    fails, or asks its caller. A later run of a task `repeats` what an earlier one said, from the beginning, or it
    `resumes` where that one was, which it reads from the record: then nothing replaces what a dead run emitted.

    The other facts are about agents elsewhere, or with room for a few tasks only. With `begins_noted` a new task has
    the notes of `begin_note` from its first write. With `waits` it stays `submitted` until its run says `working`. With
    `speaks_soon` that word is held back briefly, to be written with the agent's first event, which is usually on its
    way by then; it saves a commit. With `may_refuse` a run may find that nobody takes the task on at present
    (`Ended.retry_after_s`). With `leasable` a worker process may serve the agent, although its `direct` is "auto". With
    `forwards` callers' own credentials are passed on to another server, so that they may come with a request. With
    `exchanges` callers' tokens are exchanged for others, and go nowhere else. `kind` is for operators and decides
    nothing about a task, and so does the `provider` of its model, as spans of generative AI name it. The tasks of an
    agent `by_workers` have no runs here: worker processes take them from the queue (`engine.worker_tasks`). One that
    keeps `checkpoints` or `sessions` of its framework in the store goes on from them. A task that began with a
    `steps_version` goes on with that version of the agent's code alone (`engine.code_versions`); empty: with any.
    """

    direct: DirectMode = False
    direct_wait_s: float = DIRECT_WAIT_S
    restartable: bool = False
    step_uncertain: StepUncertain = "fail"
    memory: MemoryReach = "caller"
    checkpoints: bool = False
    sessions: bool = False
    later_run: Literal["repeats", "resumes"] = "repeats"
    one_message: bool = False
    deadline_s: float | None = None
    waits: bool = False
    begins_noted: bool = False
    speaks_soon: bool = False
    may_refuse: bool = False
    leasable: bool = False
    headers: tuple[str, ...] = ()
    forwards: bool = False
    exchanges: bool = False
    by_workers: bool = False
    steps_version: str = ""
    kind: RunnerKind = "other"
    provider: str = ""

    def keeps(self, kind: StateKind) -> bool:
        """Whether the agent's runs have stored state of that kind."""
        return {"checkpoint": self.checkpoints, "session": self.sessions}.get(kind, True)

    @property
    def header_names(self) -> tuple[str, ...]:
        """The names of all headers that the agent is given, credentials included."""
        if self.forwards:
            return (*self.headers, *CREDENTIALS)
        return (*self.headers, SUBJECT) if self.exchanges else self.headers

    def choose_headers(self, kept: TaskHeaders | None) -> TaskHeaders | None:
        """Return those headers of a task's requests that the agent is given; None if there are none here."""
        return None if kept is None else kept.restricted_to(self.header_names)


class CheckResult(Struct, frozen=True):
    """The result of one check of an agent. `fix` says what to do if it is not `ok`."""

    ok: bool
    what: str
    fix: str = ""


LIFESPAN_TIMEOUT_S = 30.0
"""How long a lifespan may take to open, unless the agent says otherwise."""


class Lifespan(Protocol):
    """A context that a user's function opens in a process, as long as agents are served."""

    @property
    def name(self) -> str:
        """Its kind, function and file, for messages: `its lifespan open_pool (agents.py:12)`."""
        ...

    @property
    def subject(self) -> object:
        """The function. Lifespans of one function are one."""
        ...

    @property
    def takes_agent(self) -> bool:
        """Whether it is entered for each of its agents, and gets it; else it is entered once for all that have it."""
        ...

    def manager(self, agent: "Runner") -> AbstractAsyncContextManager[Any]:
        """Make the context manager. It is not entered yet."""
        ...


class EndpointFacts(Protocol):
    """A member of a pool that a runner asks by itself, as operators see it.

    `state` is that of its breaker, `busy` counts the calls that are under way, and `calls` those since the start.
    """

    @property
    def name(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def order(self) -> int: ...

    @property
    def weight(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def busy(self) -> int: ...

    @property
    def calls(self) -> UpstreamCalls: ...


@runtime_checkable
class Runner(Protocol):
    """An agent of the server, described to callers by a card.

    A class that names this protocol as its base needs a `profile`, `traits` and `run`; the other methods say what holds
    for most agents.
    """

    profile: Profile
    traits: Traits
    lifespan: Lifespan | None = None
    """It is opened before the first task and closed after the last one."""
    lifespan_timeout_s: float = LIFESPAN_TIMEOUT_S
    """How long opening it may take, and closing it."""

    @property
    def offline(self) -> bool:
        """Whether sends are refused at present, with `refusal`."""
        return False

    @property
    def degraded(self) -> str | None:
        """Why it cannot do all of its work, in words for any caller, without an address; None if no fault is known.

        Something that it depends on is away: another server, an endpoint, workers, tools.
        """
        return None

    @property
    def workers(self) -> "Workers | None":
        """The worker processes that do its tasks, if its traits say `by_workers`."""
        return None

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members of its pool, in their order; none if it has one upstream, or is none elsewhere."""
        return ()

    @property
    def endpoints(self) -> Sequence[EndpointFacts]:
        """The endpoints of its model, if there are several."""
        return ()

    def heed(self, switches: Switches) -> None:
        """Give no member of its pool that operators have switched any new task from now on."""
        return

    def refusal(self) -> A2AError:
        """The error for a send while it is offline."""
        return AgentOffline(self.profile.id)

    async def begin_note(self, head: TaskHead, past: Past) -> Mapping[str, str]:
        """The notes of a new task whose head this is, if the traits say that it begins with some.

        Raises A2AError if the task cannot be taken on at present.
        """
        return {}

    def limit(self, deadline_s: float) -> None:
        """Stop the runs that begin from now on after `deadline_s`."""
        self.traits = replace(self.traits, deadline_s=deadline_s)

    def keep_no_checkpoints(self) -> None:
        """Keep nothing of a framework between tasks, as a table of the configuration says.

        Raises TypeError if the agent keeps no checkpoints anyway.
        """
        if not self.traits.checkpoints:
            raise TypeError("is for graphs of LangGraph that were compiled without one: leave it out")
        self.traits = replace(self.traits, checkpoints=False, restartable=False)

    def keep_no_sessions(self) -> None:
        """As `keep_no_checkpoints`, for an agent that keeps sessions."""
        if not self.traits.sessions:
            raise TypeError(
                "is for agents of the OpenAI Agents SDK and Google ADK without sessions of their own: leave it out"
            )
        self.traits = replace(self.traits, sessions=False, restartable=False)

    def name_steps(self, steps_version: str) -> None:
        """Set `steps_version` of the traits anew, as a table of the configuration says."""
        self.traits = replace(self.traits, steps_version=steps_version)

    def share_memory(self, reach: MemoryReach) -> None:
        """Set `memory` of the traits anew, as a table of the configuration says."""
        self.traits = replace(self.traits, memory=reach)

    def name_headers(self, headers: tuple[str, ...]) -> None:
        """Set `headers` of the traits anew, as a table of the configuration says."""
        self.traits = replace(self.traits, headers=headers)

    def forward_credentials(self, forwards: bool) -> None:
        """Set `forwards` of the traits anew, as a table of the configuration says."""
        self.traits = replace(self.traits, forwards=forwards)

    def answer_directly(self, direct: DirectMode, wait_s: float) -> None:
        """Set `direct` and `direct_wait_s` of the traits anew, as a table of the configuration says.

        Raises ValueError or TypeError; TypeError if only its code may say so.
        """
        raise TypeError(f'give the {type(self).__name__} itself traits = Traits(direct="auto")')

    def adopt(self, lifespan: Lifespan) -> None:
        """Take the lifespan of the module in which the agent is, unless it has one of its own."""
        if self.lifespan is None:
            self.lifespan = lifespan

    def bound_lifespan(self, timeout_s: float) -> None:
        """Set `lifespan_timeout_s` anew, as a table of the configuration says."""
        self.lifespan_timeout_s = timeout_s

    def lifespans(self) -> tuple[Lifespan, ...]:
        """All lifespans of this agent, in the order in which they are entered. They are left in the reverse order."""
        return () if self.lifespan is None else (self.lifespan,)

    def take_state(self, lifespan: Lifespan, yielded: Any) -> None:
        """Take what one of its `lifespans` yields, before `open`."""
        return

    async def open(self, group: JobGroup) -> None:
        """Get ready before the first task, within a bounded time. Work beside tasks runs in `group`, where its
        exceptions end nothing. Raises nothing: an agent that cannot be opened reports the fault as `degraded`."""
        return

    async def close(self) -> None:
        """Release what is open. All of its tasks have ended by then."""
        return

    async def check(self) -> AsyncIterator[CheckResult]:
        """Yield findings about the agent one after the other, within 10 s. Raises nothing.

        A check changes nothing, creates no task, and costs the agent no more than a look. It need not be open.
        """
        yield CheckResult(True, "it can be served; it has no check of its own")

    def stopped(self, record: Record) -> None:
        """Cancel elsewhere what belongs to a task that was canceled here while no run worked on it. Never raises."""
        return

    async def run(self, run: Run) -> None:
        """Do the task. Returning completes it; Reject rejects it; CancelledError cancels it; anything else fails it."""
        ...


class Workers(Protocol):
    """The worker processes of an agent, as the engine knows them."""

    lease_s: float
    """Seconds that a worker may be silent before its task goes to another."""

    def offer(self) -> None:
        """Take note that a task may wait in the queue. A worker that waits for one gets it."""
        ...

    def note_silent(self, lease: WorkerLease) -> None:
        """Take note that a task was taken from a worker that has been silent for too long."""
        ...

    async def note_lost(self) -> None:
        """Take note of tasks that workers took here, but do not have any more: they have ended, or went elsewhere, and
        no worker has said so here. Looks at some of them, at the others next time. Raises StoreError.
        """
        ...

    def forget_idle(self, for_s: float = ...) -> None:
        """Forget what is kept of tasks that no worker has spoken of for that long."""
        ...

    def rewound(self) -> None:
        """Take tasks from the workers whose words the store has lost after it had confirmed them."""
        ...

    async def left(self) -> None:
        """Wait until no worker has a task of the agent here, which is served no more."""
        ...

    async def report(self, report: CompleteTask | UpdateStatus) -> None:
        """Take a worker's report on a task of this agent (UpdateStatus, CompleteTask). It is committed on return.

        Raises A2AError: InvalidParams for a report that does not fit, LeaseLost, Unavailable.
        """
        ...


class Generation:
    """The agents that are served until others replace them: `runners` by id.

    `busy` counts the calls under way that may start a run with one of them.
    """

    __slots__ = ("_waiting", "busy", "runners")

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self.runners = runners
        self.busy = 0
        self._waiting: Future[None] | None = None

    def enter(self) -> None:
        """Count a call as under way."""
        self.busy += 1

    def leave(self) -> None:
        """Undo one `enter`: the call is over."""
        self.busy -= 1
        if self._waiting is not None and not self.busy and not self._waiting.done():
            self._waiting.set_result(None)

    async def idle(self) -> None:
        """Wait until no call is under way. Only for a generation that has been replaced, and for one waiter."""
        if self.busy:
            self._waiting = get_running_loop().create_future()
            await self._waiting
