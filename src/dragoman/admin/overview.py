"""The agents, workers, upstreams and replicas of a server, how much it has to do, and the feed of changes.

Invariant: pure values. Unless a field says otherwise, numbers of tasks count those of all replicas.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from dragoman.admin.question import Column, Question
from dragoman.admin.switches import Switch
from dragoman.admin.tasks import StateWord
from dragoman.telemetry.pulse import Quantiles


class AgentMember(Struct, frozen=True, kw_only=True):
    """A member of an agent's pool: an upstream, or an endpoint of its model. `switch` is null while it takes tasks."""

    name: str
    switch: Switch | None = None


class AgentFacts(Struct, frozen=True, kw_only=True):
    """An agent as it is served here. `degraded` is why it cannot do all of its work.

    A run that works for longer than `deadline_s` at a stretch is stopped; null: none is. Tasks that began with another
    `steps_version` do not run here; empty: any do. `switch` is null while it takes tasks. `members` are those of its
    pool, in the order of the file; none if it has one upstream.
    """

    id: str
    name: str
    version: str
    kind: str
    degraded: str | None
    deadline_s: float | None = None
    steps_version: str = ""
    switch: Switch | None = None
    members: tuple[AgentMember, ...] = ()


class WorkersHere(Struct, frozen=True, kw_only=True):
    """The workers of an agent. `connected`: one waits for work, or has called lately, here or on another replica.

    This server knows how many `workers` have called it lately, and how many tasks they wait for (`idle`).
    """

    agent: str
    connected: bool
    workers: int
    idle: int


class WorkerLine(WorkersHere, frozen=True, kw_only=True):
    """The workers of an agent, and how many of its tasks, on all servers, they have (`running`) or are `queued`.

    The longest-waiting one has waited for `oldest_queued_s`; null if none waits.
    """

    running: int
    queued: int
    oldest_queued_s: float | None = None


class WorkerTaskLine(Struct, frozen=True, kw_only=True):
    """A task that a worker has. The lease runs out in `expires_s` seconds if the worker keeps silent."""

    task: str
    expires_s: float


class KnownWorker(Struct, frozen=True, kw_only=True):
    """A worker of an agent, by the name that it gives, as all servers on the store know it.

    `last_word` is its last call: a `poll` for work, a `heartbeat` that renews a lease, or a `report` on a task; it was
    `last_word_s` seconds ago. Both are null if it has called no server that is alive. `waits`: it waits for work.
    """

    agent: str
    name: str
    last_word: Literal["poll", "heartbeat", "report"] | None
    last_word_s: float | None
    waits: bool
    leases: tuple[WorkerTaskLine, ...]


class UpstreamLine(Struct, frozen=True, kw_only=True):
    """An agent of another server, with the URL of the server. `breaker` is `closed` while it is called.

    The numbers count calls since the start. `dragoman`: its card is that of a Dragoman; null if none was read. `fault`
    says why it cannot be called, as far as is known, or is called after others; null if it is well. An agent with a
    pool has a line for each `member`, with its `order` and `weight`, and how many tasks this server has `open` there.
    """

    agent: str
    breaker: str
    succeeded: int
    refused: int
    failed: int
    url: str = ""
    dragoman: bool | None = None
    fault: str | None = None
    member: str = ""
    order: int | None = None
    weight: int | None = None
    open: int | None = None


class AgentLine(Struct, frozen=True, kw_only=True):
    """An agent with the numbers of its tasks, on all servers: those that are queued, running, sleeping or waiting, and
    all.

    `oldest_queued_s` is the age of the task that has waited longest to be run; null if none waits. A run that works for
    longer than `deadline_s` at a stretch is stopped; null: none is. Tasks that began with another `steps_version` than
    that do not run here; empty: any do. `switch` says that an operator has taken the agent out of service, on all
    servers; null while it takes tasks. `members` are those of its pool.
    """

    id: str
    name: str
    version: str
    kind: str
    degraded: str | None
    queued: int
    running: int
    waiting: int
    total: int
    oldest_queued_s: float | None = None
    deadline_s: float | None = None
    sleeping: int = 0
    steps_version: str = ""
    switch: Switch | None = None
    members: tuple[AgentMember, ...] = ()


class AgentLines(Struct, frozen=True, kw_only=True):
    """The agents that are served."""

    agents: tuple[AgentLine, ...]


class WorkerLines(Struct, frozen=True, kw_only=True):
    """The agents that workers serve, and their workers one by one, by agent and name."""

    workers: tuple[WorkerLine, ...]
    known: tuple[KnownWorker, ...] = ()


class UpstreamLines(Struct, frozen=True, kw_only=True):
    """The agents of other servers."""

    upstreams: tuple[UpstreamLine, ...]


class ReplicaLine(Struct, frozen=True, kw_only=True):
    """A server that is alive on this store. A server on SQLite is alone.

    One that is `silent` has given no sign of life for half of `replica_lease_s`.
    """

    id: str
    address: str
    agents: tuple[str, ...]
    started_at: str
    silent: bool = False


class ReplicaLines(Struct, frozen=True, kw_only=True):
    """The servers that are alive on this store, in the order of their start."""

    replicas: tuple[ReplicaLine, ...]


class StateLine(Struct, frozen=True):
    """The state that agents keep beside their tasks, of one kind: `memory`, `checkpoint`, `session` or `store`.

    `scopes` are conversations, or callers with what all their conversations share; `bytes` those of keys and values.
    """

    scopes: int
    entries: int
    bytes: int


class Stats(Struct, frozen=True, kw_only=True):
    """How much there is to do. `tasks` counts by state, which is what callers see. Those that have not ended are
    `queued` until they are taken on, `running`, `sleeping` until a time, or `waiting` for their callers. `outage` is
    why writes fail, null if they do not.

    `silent_replicas` have not beaten for half of their lease. `webhook_calls_paused` are those of the pending ones that
    wait for a paused host. `store_bytes` is the size of the store. `state` is what agents keep in it beside their
    tasks, by kind. `input_tokens_today` and `output_tokens_today` are what the runs that ended today (UTC) have used;
    null if none said so. All else is of this process, since its start: `writes`, `failed_writes`, `streams` that are
    open, and, for the last hour at most, oldest minute first, `requests_a_minute`, without those to the admin API, and
    `tasks_a_minute`, by `submitted` or the state of their end. `webhook_calls` are those of that hour by outcome:
    `delivered`, `retry`, `dead`, `gone`. `first_event`, `completion` and `commit` are those of the last five minutes;
    null if there was none. Without metrics these seven are empty or null. `jobs` are those of this server that have
    failed lately: how often, and when they are started again.
    """

    tasks: dict[str, int]
    queued: int
    running: int
    waiting: int
    webhook_calls_pending: int
    webhook_calls_dead: int
    replicas: int
    writes: int
    failed_writes: int
    outage: str | None
    sleeping: int = 0
    webhook_calls_paused: int = 0
    silent_replicas: int = 0
    store_bytes: int = 0
    state: dict[str, StateLine] = {}
    input_tokens_today: int | None = None
    output_tokens_today: int | None = None
    streams: int | None = None
    requests_a_minute: tuple[int, ...] = ()
    tasks_a_minute: dict[str, tuple[int, ...]] = {}
    first_event: Quantiles | None = None
    completion: Quantiles | None = None
    commit: Quantiles | None = None
    webhook_calls: dict[str, int] = {}
    jobs: Mapping[str, str] = {}


class FeedReset(Struct, frozen=True):
    """The reader has to load its lists anew: it has just come (`start`), was away for too long or the server does not
    know its position (`gap`), too much has changed at once (`many`), or it has read too slowly (`slow`)."""

    reason: Literal["start", "gap", "many", "slow"]
    at: str


class TaskChange(Struct, frozen=True, kw_only=True):
    """The status of a task changed at `at`. `seq` is the number of its last event when that was read."""

    id: str
    agent: str
    principal: str
    context: str
    state: StateWord
    at: str
    seq: int


class OperatorAct(Struct, frozen=True, kw_only=True):
    """An operator, or a command on the store, changed something: `tasks.delete`, `keys.create` …"""

    at: str
    principal: str
    action: str
    task: str = ""
    subject: str = ""


class ServedAgentFacts(Struct, frozen=True):
    """All agents that this server serves."""

    agents: tuple[AgentFacts, ...]


class WorkerFacts(Struct, frozen=True):
    """All agents of workers that this server serves."""

    workers: tuple[WorkersHere, ...]


class UpstreamFacts(Struct, frozen=True):
    """All agents of other servers that this server serves."""

    upstreams: tuple[UpstreamLine, ...]


class ReplicaFacts(Struct, frozen=True):
    """All servers that are alive on the store."""

    replicas: tuple[ReplicaLine, ...]


class DeliveryFacts(Struct, frozen=True):
    """How many webhook calls are pending and dead in the store, and when the next one is due at the earliest."""

    pending: int
    dead: int
    next: str | None


FOLLOW_CHANGES: Question[None, FeedReset] = Question(
    name="followChanges",
    of_teams=True,
    path="/events",
    summary="Follow what changes: tasks, agents, workers, upstreams, replicas, and what operators do.",
    events={
        "reset": FeedReset,
        "task": TaskChange,
        "act": OperatorAct,
        "agents": ServedAgentFacts,
        "workers": WorkerFacts,
        "upstreams": UpstreamFacts,
        "webhooks": DeliveryFacts,
        "replicas": ReplicaFacts,
    },
)
LIST_AGENTS: Question[None, AgentLines] = Question(
    name="listAgents",
    of_teams=True,
    path="/agents",
    summary="List the agents that are served, with the numbers of their tasks.",
    answer=AgentLines,
    action="agents.list",
    shared=True,
    lines="agents",
    columns=(
        *(Column("AGENT", "id"), Column("KIND", "kind"), Column("VERSION", "version")),
        Column("STEPS", "steps_version"),
        *(Column("QUEUED", "queued"), Column("OLDEST", "oldest_queued_s", "age"), Column("RUNNING", "running")),
        *(Column("SLEEPING", "sleeping"), Column("WAITING", "waiting"), Column("TOTAL", "total")),
        *(Column("SWITCH", "switch"), Column("FAULT", "degraded")),
    ),
)
LIST_WORKERS: Question[None, WorkerLines] = Question(
    name="listWorkers",
    path="/workers",
    summary="List the agents that workers serve, and whether a worker is there.",
    answer=WorkerLines,
    action="workers.list",
    shared=True,
    lines="workers",
    columns=(
        *(Column("AGENT", "agent"), Column("CONNECTED", "connected"), Column("WORKERS", "workers")),
        *(Column("IDLE", "idle"), Column("RUNNING", "running"), Column("QUEUED", "queued")),
        Column("OLDEST", "oldest_queued_s", "age"),
    ),
)
LIST_UPSTREAMS: Question[None, UpstreamLines] = Question(
    name="listUpstreams",
    path="/upstreams",
    summary="List the agents of other servers and the members of their pools, with breakers and outcomes of calls.",
    answer=UpstreamLines,
    action="upstreams.list",
    lines="upstreams",
    columns=(
        *(Column("AGENT", "agent"), Column("MEMBER", "member"), Column("BREAKER", "breaker")),
        *(Column("SUCCEEDED", "succeeded"), Column("REFUSED", "refused"), Column("FAILED", "failed")),
        *(Column("OPEN", "open"), Column("FAULT", "fault")),
    ),
)
LIST_REPLICAS: Question[None, ReplicaLines] = Question(
    name="listReplicas",
    path="/replicas",
    summary="List the servers that are alive on the store.",
    answer=ReplicaLines,
    action="replicas.list",
    lines="replicas",
    columns=(
        *(Column("REPLICA", "id"), Column("ADDRESS", "address"), Column("STARTED", "started_at")),
        *(Column("SILENT", "silent"), Column("AGENTS", "agents")),
    ),
)
SHOW_STATS: Question[None, Stats] = Question(
    name="showStats",
    of_teams=True,
    path="/stats",
    summary="Show how many tasks are in each state, and how many webhook calls are pending.",
    answer=Stats,
    action="stats.show",
    shared=True,
)
