"""The rules about time: what has to happen soon while nothing disturbs the replicas, as pure functions.

The polls are slow in a simulation, so that nothing happens soon by a poll alone. A bus that works, and what replicas
know of each other, have to be enough.

Invariant: a duty begins and ends with happenings of the history. A disturbance that begins before a duty is done puts
it off, until what it harmed has recovered.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dragoman.model.events import MessageReceived, StatusChanged, Stepped, Submitted
from dragoman.model.ids import timestamp_ms
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskState
from dragoman.store.api import ASLEEP
from tests.simulation import history as h
from tests.simulation.agents import AGENTS, HIRED, WORKER_LEASE_S, lingers_s, sleeps
from tests.simulation.replica import COURIER

SOON_S = 2.0
"""Within this time of the database's clock everything happens that nothing has to wait for."""

OFFER_S = 2.0
"""How long an offer of a lease lasts, as docs/architecture/replicas.md says."""


class Terms(Struct, frozen=True):
    """The settings of the replicas that the rules depend on, in seconds; `serves` are the agents of each replica.

    `soon_s` is the time within which everything happens that nothing has to wait for.
    """

    claim_s: float
    poll_s: float
    lease_s: float
    suspend_max_s: float
    cancel_grace_s: float
    serves: Mapping[str, tuple[str, ...]]
    soon_s: float = SOON_S

    @property
    def recovers_s(self) -> float:
        """How long it takes at most until others have taken over what a dead replica had."""
        return self.lease_s + self.claim_s + self.soon_s


class Watched:
    """The facts known of a task as the history goes on, with their times."""

    def __init__(self) -> None:
        self.agent = ""
        self.parent: str | None = None
        self.detached = False
        self.script = ""
        self.state = TaskState.SUBMITTED
        self.settled = False
        self.states: list[TaskState] = []
        """The state after each event."""
        self.told_s: list[float] = []
        """When each event was committed."""
        self.settlings: list[int] = []
        """The seqs of the statuses in which it settled."""
        self.messages: dict[str, int] = {}
        self.asked_s: float | None = None
        """Since when it has been waiting for an answer."""
        self.asked_by: str | None = None
        """The replica whose run asked."""
        self.leased_by: str | None = None
        """Who gave the lease to its holder: that one itself, unless it is an offer."""
        self.idle_s: float | None = None
        """Since when nobody has been working on it who should."""
        self.passed_over = False
        """Whether somebody has written to it since, so that a claim may have passed it over, as it was locked."""
        self.rests_s = 0.0
        """How long its last sleep is."""
        self.offered_s: float | None = None
        self.ended_s: float | None = None
        self.at_work: int | None = None
        """The epoch in which its agent is at work, if it is."""
        self.stepped = False
        """Whether its agent has recorded a step, so that it goes on after a crash, restartable or not."""
        self.hooked: set[str] = set()
        self.worker: str | None = None
        """The worker that has it."""
        self.free_s: float | None = None
        """Since when workers may take it."""
        self.granted: tuple[str, float] | None = None
        """The worker that has been given a lease of it without having begun with it, and when."""
        self.lapses_s = 0.0
        """When the lease of a worker that died is over. A heartbeat renews it that waits for half of it then."""


def check_soon(history: h.History, terms: Terms) -> list[str]:
    """Everything that did not happen soon, each with its time."""
    checking = _Watch(terms)
    found: list[str] = []
    for at_s, happening in history.happenings:
        found += [f"{at_s:.3f}: {wrong}" for wrong in checking.step(at_s, happening)]
    at_s = history.now_s()
    return found + [f"{at_s:.3f}: {wrong}" for wrong in checking.finish(at_s)]


class _Watch:
    """The fold over a history."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._tasks: dict[str, Watched] = {}
        self._children: dict[str, list[str]] = {}
        self._last_idle = 0.0
        """Since when the worker that has just ceased to wait had waited."""
        self._disturbed: dict[str, float] = {}
        """Until when each cause disturbs."""
        self._streams: dict[tuple[str, int], tuple[str, int, float]] = {}
        """For each open stream its task, its last seq, and when it was opened."""
        self._stale: dict[tuple[str, int], float] = {}
        """The streams that have shown what the database has lost since, and when it did."""
        self._unsettled_s = 0.0
        """Until when a call may be on its way, as far as the database knows, of which it has lost that it arrived."""
        self._cancels: dict[tuple[str, str], float] = {}
        """When each client has asked last to cancel a task."""
        self._idle: dict[str, float] = {}
        """The workers that wait for a task, and since when."""
        self._hooks: dict[tuple[str, str], float] = {}
        """The webhooks that are to hear of the end of their task, and since when."""

    # -- the weather ---------------------------------------------------------------------------------------------------

    @property
    def _calm_s(self) -> float:
        """When the last disturbance is over, as far as they have begun."""
        return max(self._disturbed.values(), default=0.0)

    def _late(self, since_s: float, at_s: float, allowed_s: float = 0.0) -> bool:
        """Whether `at_s` is too late for what should have happened soon after `since_s`.

        Whatever a disturbance may have harmed is found by the next poll after it.
        """
        calm_s = self._calm_s
        if since_s < calm_s:
            since_s = calm_s + self._terms.poll_s
        return at_s > since_s + allowed_s + self._terms.soon_s

    def _fine_since(self, agent: str) -> float:
        """Since when some replica that serves an agent has been reaching the database without disturbance."""
        disturbed = self._disturbed
        whole_s = disturbed.get("database", 0.0)
        since = [
            max(disturbed.get(name, 0.0), disturbed.get(f"network of {name}", 0.0))
            for name, agents in self._terms.serves.items()
            if agent in agents
        ]
        return max(whole_s, min(since, default=float("inf")))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _task(self, task_id: str) -> Watched:
        known = self._tasks.get(task_id)
        if known is None:
            known = self._tasks[task_id] = Watched()
        return known

    def step(self, at_s: float, happening: h.Happening) -> Iterable[str]:
        """The faults of one happening, after those before it."""
        match happening:
            case h.Weather(cause, until_s):
                self._disturbed[cause] = until_s
            case h.Committed():
                return self._committed(at_s, happening)
            case h.Leased(task_id, by):
                self._task(task_id).leased_by = by
            case h.Held():
                return self._held(at_s, happening)
            case h.Began(task_id, by, epoch):
                return self._began(at_s, task_id, by, epoch)
            case h.Granted(task_id, worker):
                self._task(task_id).granted = worker, at_s
            case h.Ended(worker):
                self._lose_grants(worker)
            case h.Took(worker, task_id):
                return self._took(at_s, worker, task_id)
            case h.Let(worker, task_id, gives_back):
                self._let(at_s, worker, task_id, gives_back=gives_back)
            case h.Idle(worker, waits):
                if waits:
                    self._idle[worker] = at_s
                else:
                    self._last_idle = self._idle.pop(worker, at_s)
            case h.Told():
                return self._told(at_s, happening)
            case h.Asked(client, _, "cancel", task_id):
                self._cancels[client, task_id] = at_s
            case h.Erred(client, "cancel", task_id):
                return self._refused(at_s, client, task_id)
            case h.Followed():
                return self._followed(at_s, happening)
            case h.Left(client, stream, _):
                return self._left(at_s, client, stream)
            case h.Swept(task_id):
                for key in [key for key in self._hooks if key[0] == task_id]:
                    del self._hooks[key]  # nobody is told what is deleted
            case h.Rewound(tasks):
                self._rewound(at_s, tasks)
            case h.Registered(task_id, config_id, _):
                self._registered(at_s, task_id, config_id)
            case h.Delivered(task_id, config_id, _, seq, _):
                return self._delivered(at_s, task_id, config_id, seq)
            case _:
                pass
        return ()

    def _committed(self, at_s: float, made: h.Committed) -> Iterable[str]:
        if made.first == 1:
            self._tasks.pop(made.task_id, None)  # one that was deleted, and delegated again
        task = self._task(made.task_id)
        for seq, event in enumerate(made.events, made.first):
            task.told_s.append(at_s)
            if isinstance(event, Submitted):
                task.script = event.message.text
                task.free_s = at_s
                self._join(made.task_id, task, made)
            if isinstance(event, MessageReceived) and task.idle_s is not None:
                task.passed_over = True
            if isinstance(event, Submitted | MessageReceived):
                task.messages[event.message.message_id] = seq
            task.stepped = task.stepped or isinstance(event, Stepped) or sleeps(event)
            if isinstance(event, StatusChanged) and event.placed is not None and event.placed.wakes_ms is not None:
                task.rests_s = (event.placed.wakes_ms - timestamp_ms(event.timestamp)) / 1000
            if isinstance(event, StatusChanged):
                self._changed(at_s, task, event, seq, made)
            task.states.append(task.state)
        if made.run is not None and not task.settled:
            yield from self._works(made.task_id, task, made.by, made.run)
        if task.state in TERMINAL:
            yield from self._ended(at_s, made.task_id, task)

    def _join(self, task_id: str, task: Watched, made: h.Committed) -> None:
        task.agent, task.parent, task.detached = made.agent, made.parent, made.detached
        if task.parent is not None and not task.detached:
            self._children.setdefault(task.parent, []).append(task_id)

    def _changed(self, at_s: float, task: Watched, event: StatusChanged, seq: int, made: h.Committed) -> None:
        task.state = event.state
        task.settled = event.state in TERMINAL or event.state in INTERRUPTED
        if task.settled:
            task.settlings.append(seq)
        if event.state in INTERRUPTED:
            task.asked_s, task.asked_by, task.at_work = at_s, made.by, None
            task.idle_s = task.offered_s = task.free_s = None
        elif not task.settled and task.worker is None and task.free_s is None:
            task.free_s = max(at_s, task.lapses_s)

    def _ended(self, at_s: float, task_id: str, task: Watched) -> Iterable[str]:
        task.ended_s = at_s
        if task.idle_s is not None and self._late(task.idle_s, at_s) and task.state is not TaskState.CANCELED:
            yield f"task {task_id}: nobody worked on it from {task.idle_s:.3f} to its end"
        task.idle_s = task.offered_s = task.free_s = None
        parent = None if task.parent is None or task.detached else self._tasks.get(task.parent)
        if parent is not None and parent.ended_s is not None:
            yield from self._outlived(at_s, task_id, task, parent)
        for config_id in task.hooked:
            self._hooks[task_id, config_id] = at_s

    def _outlived(self, at_s: float, task_id: str, task: Watched, parent: Watched) -> Iterable[str]:
        """A child ends soon after its parent, with the time that its agent takes to stop."""
        assert parent.ended_s is not None
        since_s = max(parent.ended_s, task.told_s[0])
        if self._late(since_s, at_s, min(lingers_s(task.script), self._terms.cancel_grace_s)):
            yield f"task {task_id} goes on after the end of its parent at {parent.ended_s:.3f}"

    def _held(self, at_s: float, made: h.Held) -> Iterable[str]:
        task = self._task(made.task_id)
        if task.settled or task.agent == HIRED:  # a queued task waits for a worker
            task.idle_s = task.offered_s = None
            return
        if made.holder == ASLEEP:  # a look each `claim_s` finds when it wakes
            task.idle_s, task.offered_s, task.passed_over = at_s + task.rests_s, None, True
            return
        if made.holder is not None and not made.offered:
            yield from self._taken(at_s, made.task_id, task)
            task.idle_s = task.offered_s = None
            return
        if task.idle_s is None:
            task.idle_s = at_s
        yield from self._lapsed(at_s, made.task_id, task)
        task.offered_s = None
        if made.offered and made.holder != task.leased_by:
            yield from self._offered(at_s, made, task)
            task.offered_s = at_s

    def _offered(self, at_s: float, made: h.Held, task: Watched) -> Iterable[str]:
        """A lease is offered to the replica that keeps the run, as long as it does."""
        if task.asked_s is None or made.holder != task.asked_by:
            return
        until_s = task.asked_s + self._terms.suspend_max_s
        if self._late(until_s, at_s) and until_s > self._calm_s:
            yield f"task {made.task_id} is offered to {made.holder}, which has given its run up at {until_s:.3f}"

    def _taken(self, at_s: float, task_id: str, task: Watched) -> Iterable[str]:
        """Somebody works on a task from now on."""
        allowed_s = self._terms.claim_s if task.passed_over else 0.0
        task.passed_over = False
        if task.idle_s is not None and self._late(task.idle_s, at_s, allowed_s):
            yield f"task {task_id}: nobody worked on it since {task.idle_s:.3f}"
        yield from self._lapsed(at_s, task_id, task)

    def _lapsed(self, at_s: float, task_id: str, task: Watched) -> Iterable[str]:
        """Others take what was offered in vain, if one of them reaches the database."""
        since_s = task.offered_s
        if since_s is None or self._fine_since(task.agent) > since_s:
            return
        if at_s > since_s + OFFER_S + self._terms.claim_s + self._terms.soon_s:
            yield f"task {task_id} was offered at {since_s:.3f}, and nobody took it in time"

    def _began(self, at_s: float, task_id: str, by: str, epoch: int) -> Iterable[str]:
        """An agent begins. After a failover it may go on under the lease that its replica has still."""
        task = self._task(task_id)
        yield from self._taken(at_s, task_id, task)
        task.idle_s = task.offered_s = None
        yield from self._works(task_id, task, by, epoch)

    def _works(self, task_id: str, task: Watched, by: str, epoch: int) -> Iterable[str]:
        """An agent is at work in an epoch. One that is not restartable was not at work in an earlier one, unless it has
        recorded a step."""
        if task.at_work is not None and task.at_work < epoch and not (AGENTS[task.agent] or task.stepped):
            yield f"task {task_id} of {task.agent}, which is not restartable, is run again by {by} in epoch {epoch}"
        task.at_work = epoch

    def _took(self, at_s: float, worker: str, task_id: str) -> Iterable[str]:
        """A worker takes a task, for which it or another one has waited. None of the others has waited for long."""
        for each_id, each in self._tasks.items():
            yield from self._waits(at_s, each_id, each, self._last_idle)
        task = self._task(task_id)
        task.worker, task.free_s, task.granted = worker, None, None

    def _lose_grants(self, worker: str) -> None:
        """A worker has ended. What was on its way to it is another's once that lease is over: nobody renews it."""
        for task in self._tasks.values():
            if task.granted is not None and task.granted[0] == worker:
                if task.free_s is not None:
                    task.free_s = max(task.free_s, task.granted[1] + WORKER_LEASE_S)
                task.granted = None

    def _waits(self, at_s: float, task_id: str, task: Watched, idle_s: float) -> Iterable[str]:
        since_s = min((idle_s, *self._idle.values()))
        if task.agent == HIRED and task.free_s is not None and self._late(max(task.free_s, since_s), at_s):
            yield f"task {task_id} waits for a worker since {task.free_s:.3f}, and one for a task since {since_s:.3f}"

    def _let(self, at_s: float, worker: str, task_id: str, *, gives_back: bool) -> None:
        task = self._task(task_id)
        if task.worker == worker:
            # While a question is open, it cannot give back elsewhere, and while no database is there, nowhere.
            at_once = gives_back and not task.settled and self._disturbed.get("failover", 0.0) <= at_s
            task.worker, task.lapses_s = None, at_s + (0.0 if at_once else 1.5 * WORKER_LEASE_S)
            if not task.settled:
                task.free_s = task.lapses_s

    def _told(self, at_s: float, made: h.Told) -> Iterable[str]:
        task = self._task(made.task_id)
        since_s, allowed_s = made.asked_s, 0.0
        if made.what == "cancel":
            allowed_s = min(lingers_s(task.script), self._terms.cancel_grace_s)
        elif made.waited:
            seq = task.messages.get(made.message, 0)
            if not task.settled or task.settlings[-1] <= seq:
                return  # one that goes on at once may be missed
            since_s = max(since_s, task.told_s[task.settlings[-1] - 1])
        if self._late(since_s, at_s, allowed_s):
            yield f"{made.client} is told ({made.what} {made.task_id}) what was to be told since {since_s:.3f}"

    def _refused(self, at_s: float, client: str, task_id: str) -> Iterable[str]:
        """A cancel has failed, perhaps since its agent has ended the task. It must not have had long for that."""
        task, since_s = self._task(task_id), self._cancels.get((client, task_id), at_s)
        if self._late(since_s, at_s, min(lingers_s(task.script), self._terms.cancel_grace_s)):
            yield f"{client} cannot cancel {task_id}, which it asked for at {since_s:.3f}"

    def _followed(self, at_s: float, made: h.Followed) -> Iterable[str]:
        key, task = (made.client, made.stream), self._task(made.task_id)
        opened_s = self._streams[key][2] if key in self._streams else made.asked_s
        self._streams[key] = (made.task_id, made.seq, opened_s)
        if made.event is None:
            self._stale.pop(key, None)  # it begins anew
        if made.event is not None:
            yield from self._unheard(at_s, made.client, made.task_id, made.seq, task, opened_s)

    def _left(self, at_s: float, client: str, stream: int) -> Iterable[str]:
        """Whatever a stream has not brought by its end must be new."""
        task_id, seq, opened_s = self._streams.pop((client, stream), ("", 0, 0.0))
        if (rewound_s := self._stale.pop((client, stream), None)) is not None:
            yield from self._outdated(at_s, client, task_id, rewound_s)
            return
        task = self._tasks.get(task_id)
        if task is not None and seq < len(task.told_s):
            yield from self._unheard(at_s, client, task_id, seq + 1, task, opened_s)

    def _outdated(self, at_s: float, client: str, task_id: str, rewound_s: float) -> Iterable[str]:
        """A stream ends that has shown what is lost."""
        if self._late(rewound_s, at_s):
            yield f"{client} follows {task_id}, of which it was shown what has been lost since {rewound_s:.3f}"

    def _unheard(
        self, at_s: float, client: str, task_id: str, seq: int, task: Watched, opened_s: float
    ) -> Iterable[str]:
        if seq <= len(task.told_s) and self._late(max(opened_s, task.told_s[seq - 1]), at_s):
            yield f"{client} follows {task_id}, and has not heard of {seq} since {task.told_s[seq - 1]:.3f}"

    def _registered(self, at_s: float, task_id: str, config_id: str) -> None:
        task = self._task(task_id)
        if task.state not in TERMINAL:
            task.hooked.add(config_id)

    def _delivered(self, at_s: float, task_id: str, config_id: str, seq: int) -> Iterable[str]:
        task, since_s = self._task(task_id), self._hooks.get((task_id, config_id))
        if since_s is not None and seq == len(task.told_s):
            del self._hooks[task_id, config_id]
            if self._late(max(since_s, self._unsettled_s), at_s):
                yield f"webhook {config_id} of {task_id} hears only now of its end at {since_s:.3f}"

    # -- a standby that takes over -------------------------------------------------------------------------------------

    def _rewound(self, at_s: float, tasks: Mapping[str, tuple[int, int]]) -> None:
        """The last commits are lost: streams that showed them end soon, and somebody takes up their tasks."""
        for key, (task_id, seq, _) in self._streams.items():
            if seq > tasks.get(task_id, (0, 0))[0]:
                self._stale[key] = at_s
        for task_id in [task_id for task_id in self._tasks if task_id not in tasks]:
            del self._tasks[task_id]
        for task_id, task in self._tasks.items():
            self._go_back(at_s, task, tasks[task_id][0])
        self._hooks.clear()
        self._unsettled_s = at_s + COURIER.claim_s

    def _go_back(self, at_s: float, task: Watched, seq: int) -> None:
        if seq == len(task.told_s):
            return
        said = set(task.messages.values())
        if any(lost not in said for lost in range(seq + 1, len(task.told_s) + 1)):
            task.at_work = None  # else its run goes on, which has not read what callers said
        task.told_s, task.states = task.told_s[:seq], task.states[:seq]
        task.settlings = [each for each in task.settlings if each <= seq]
        task.messages = {message: each for message, each in task.messages.items() if each <= seq}
        task.state = task.states[-1]
        task.settled = task.state in TERMINAL or task.state in INTERRUPTED
        task.asked_s = task.asked_by = task.offered_s = task.free_s = task.worker = task.granted = None
        task.idle_s = None if task.settled or task.agent == HIRED or task.at_work is not None else at_s
        if task.state not in TERMINAL:
            task.ended_s = None
        task.hooked.clear()

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, at_s: float) -> Iterable[str]:
        """Whatever is still to be done, and should have been done by now."""
        for task_id, task in self._tasks.items():
            allowed_s = self._terms.claim_s if task.passed_over else 0.0
            if task.idle_s is not None and self._late(task.idle_s, at_s, allowed_s):
                yield f"task {task_id}: nobody has worked on it since {task.idle_s:.3f}"
            yield from self._lapsed(at_s, task_id, task)
            yield from self._waits(at_s, task_id, task, float("inf"))
            if task.ended_s is None:
                continue
            for child_id in self._children.get(task_id, ()):
                child = self._tasks.get(child_id)  # the database may have lost it
                if child is not None and child.ended_s is None:
                    yield from self._outlived(at_s, child_id, child, task)
        for (client, stream), (task_id, seq, opened_s) in self._streams.items():
            if (rewound_s := self._stale.get((client, stream))) is not None:
                yield from self._outdated(at_s, client, task_id, rewound_s)
            elif task_id in self._tasks and seq < len(self._tasks[task_id].told_s):
                yield from self._unheard(at_s, client, task_id, seq + 1, self._tasks[task_id], opened_s)
