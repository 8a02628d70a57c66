"""The routes of the admin API: each with the struct that its query or body is read into, and that of its answer.

Invariant: the routes, the decoding, the encoding and the OpenAPI document come from this one table.
"""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman.admin.audit import AuditLines, AuditQuery
from dragoman.admin.keys import (
    IssuedKey,
    KeyBeginnings,
    KeyLine,
    KeyLines,
    KeyQuery,
    KeyRequest,
    LimitChanges,
    RevokedKey,
    RevokeRequest,
    RotateRequest,
)
from dragoman.admin.logs import LogEnded, LogPruned, Moment, Recording, Timeline, TimelineEntry, Tree, Wire
from dragoman.admin.overview import (
    AgentLines,
    DeliveryFacts,
    FeedReset,
    OperatorAct,
    ReplicaFacts,
    ReplicaLines,
    ServedAgentFacts,
    Stats,
    TaskChange,
    UpstreamFacts,
    UpstreamLines,
    WorkerFacts,
    WorkerLines,
)
from dragoman.admin.tasks import (
    CancelReason,
    CancelReport,
    CancelRequest,
    ChangedTask,
    ConversationLines,
    ConversationQuery,
    DeletedTask,
    DeleteReport,
    DeleteRequest,
    SentAgain,
    TaskAnswer,
    TaskFilter,
    TaskLines,
    TaskOrder,
    TaskReport,
    UpstreamAnswer,
)
from dragoman.admin.usage import UsageQuery, UsageReport
from dragoman.admin.webhooks import (
    DeadLetters,
    DeadLettersChanged,
    DeliveryLines,
    DeliveryQuery,
    DeliveryReport,
    HostChanged,
    HostName,
    PausedHostLines,
    TaskDeliveries,
)
from dragoman.bindings.admin.remote_routes import REMOTE_ROUTES
from dragoman.bindings.admin.route import AdminRoute
from dragoman.dialects.json_bounds import EXACT_MAX

Limit = Annotated[int, Meta(ge=1, le=1000)]


class TaskQuery(TaskFilter, frozen=True, kw_only=True):
    """The tasks that fit every field that is set, in an `order`, a page of at most `limit` after `cursor`."""

    order: TaskOrder | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str = ""


class LogQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events after seq `after`, at most `limit`."""

    after: Annotated[int, Meta(ge=0, le=EXACT_MAX)] = 0
    limit: Limit = 200


class DeleteQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `force` a task that has not ended is canceled first."""

    force: bool = False


class MomentQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The task after its event `seq`; as it stands if that is left out."""

    seq: Annotated[int, Meta(ge=1, le=EXACT_MAX)] | None = None


class WireQuery(LogQuery, frozen=True, kw_only=True):
    """The same events in `dialects`, which are names with commas between them."""

    dialects: str = "1.0,0.3,beeos,kaos,evoai,protoagent"


ROUTES: tuple[AdminRoute, ...] = (
    AdminRoute(
        name="listTasks",
        method="GET",
        path="/tasks",
        summary="List tasks of everybody, newest status first, or in another order.",
        given=TaskQuery,
        answer=TaskLines,
        act=lambda admin, asked: admin.reads.list_tasks(
            asked.operator, asked.given, asked.given.limit, asked.given.cursor, asked.given.order
        ),
    ),
    AdminRoute(
        name="listConversations",
        method="GET",
        path="/conversations",
        summary="List the contexts of everybody, each with one principal and one agent, newest status first.",
        given=ConversationQuery,
        answer=ConversationLines,
        act=lambda admin, asked: admin.reads.list_conversations(asked.operator, asked.given),
    ),
    AdminRoute(
        name="cancelTasks",
        method="POST",
        path="/tasks:cancel",
        summary="Cancel all open tasks that fit a filter, or list them with dry_run.",
        given=CancelRequest,
        answer=CancelReport,
        act=lambda admin, asked: admin.tasks.cancel_many(asked.operator, asked.given),
    ),
    AdminRoute(
        name="cancelTask",
        method="POST",
        path="/tasks/{id}:cancel",
        summary="Cancel one task, and wait until it has ended.",
        given=CancelReason,
        optional=True,
        answer=ChangedTask,
        act=lambda admin, asked: admin.tasks.cancel(asked.operator, asked.ids["id"], asked.given.reason),
    ),
    AdminRoute(
        name="answerTask",
        method="POST",
        path="/tasks/{id}:answer",
        summary="Answer a task that waits for its caller, or approve or refuse what it asks for.",
        given=TaskAnswer,
        answer=ChangedTask,
        act=lambda admin, asked: admin.tasks.answer(asked.operator, asked.ids["id"], asked.given),
    ),
    AdminRoute(
        name="sendAgain",
        method="POST",
        path="/tasks/{id}:send-again",
        summary="Send the first message of a task to its agent again, as a new task of the operator.",
        answer=SentAgain,
        act=lambda admin, asked: admin.tasks.send_again(asked.operator, asked.ids["id"]),
    ),
    AdminRoute(
        name="deleteTasks",
        method="POST",
        path="/tasks:delete",
        summary="Delete all tasks that fit a filter and have ended, or list them with dry_run.",
        given=DeleteRequest,
        answer=DeleteReport,
        act=lambda admin, asked: admin.tasks.delete_many(asked.operator, asked.given),
    ),
    AdminRoute(
        name="deleteTask",
        method="DELETE",
        path="/tasks/{id}",
        summary="Delete one task that has ended, with all that belongs to it.",
        given=DeleteQuery,
        answer=DeletedTask,
        act=lambda admin, asked: admin.tasks.delete(asked.operator, asked.ids["id"], force=asked.given.force),
    ),
    AdminRoute(
        name="showTask",
        method="GET",
        path="/tasks/{id}",
        summary="Show one task.",
        answer=TaskReport,
        act=lambda admin, asked: admin.reads.show_task(asked.operator, asked.ids["id"]),
    ),
    AdminRoute(
        name="readLog",
        method="GET",
        path="/tasks/{id}/log",
        summary="Read the events of a task in their order.",
        given=LogQuery,
        answer=Timeline,
        act=lambda admin, asked: admin.reads.read_log(
            asked.operator, asked.ids["id"], asked.given.after, asked.given.limit
        ),
        follow=lambda admin, asked: admin.reads.follow_log(
            asked.operator, asked.ids["id"], asked.position or str(asked.given.after)
        ),
        events={"event": TimelineEntry, "pruned": LogPruned, "end": LogEnded},
    ),
    AdminRoute(
        name="followChanges",
        method="GET",
        path="/events",
        summary="Follow what changes: tasks, agents, workers, upstreams, replicas, and what operators do.",
        follow=lambda admin, asked: admin.follow_changes(asked.operator, asked.position),
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
    ),
    AdminRoute(
        name="readContent",
        method="GET",
        path="/tasks/{id}/content",
        summary="Read the events of a task with all that they hold.",
        given=LogQuery,
        answer=Recording,
        act=lambda admin, asked: admin.reads.read_content(
            asked.operator, asked.ids["id"], asked.given.after, asked.given.limit
        ),
    ),
    AdminRoute(
        name="readMoment",
        method="GET",
        path="/tasks/{id}/moment",
        summary="Read one task as it stands, or as it stood after one of its events.",
        given=MomentQuery,
        answer=Moment,
        act=lambda admin, asked: admin.reads.read_moment(asked.operator, asked.ids["id"], asked.given.seq),
    ),
    AdminRoute(
        name="readTree",
        method="GET",
        path="/tasks/{id}/tree",
        summary="Read the task with those that were delegated from it.",
        answer=Tree,
        act=lambda admin, asked: admin.reads.read_tree(asked.operator, asked.ids["id"], asked.facts),
    ),
    AdminRoute(
        name="askUpstream",
        method="POST",
        path="/tasks/{id}:ask-upstream",
        summary="Ask the agent of another server how the task stands that it made of this one.",
        answer=UpstreamAnswer,
        act=lambda admin, asked: admin.reads.ask_upstream(asked.operator, asked.ids["id"], asked.facts),
    ),
    AdminRoute(
        name="readDeliveries",
        method="GET",
        path="/tasks/{id}/deliveries",
        summary="Read the webhook deliveries of the task: delivered, pending and dead ones.",
        answer=TaskDeliveries,
        act=lambda admin, asked: admin.webhooks.of_task(asked.operator, asked.ids["id"]),
    ),
    AdminRoute(
        name="readWire",
        method="GET",
        path="/tasks/{id}/wire",
        summary="Read the events of a task as the streams of several dialects carry them.",
        given=WireQuery,
        answer=Wire,
        act=lambda admin, asked: admin.reads.read_wire(
            asked.operator,
            asked.ids["id"],
            asked.given.dialects.split(","),
            asked.given.after,
            asked.given.limit,
        ),
    ),
    AdminRoute(
        name="listKeys",
        method="GET",
        path="/keys",
        summary="List the keys of callers, oldest first, without their secrets.",
        given=KeyQuery,
        answer=KeyLines,
        act=lambda admin, asked: admin.keys.list(asked.operator, asked.given),
    ),
    AdminRoute(
        name="createKey",
        method="POST",
        path="/keys",
        summary="Make a key. Its secret is in this answer alone.",
        given=KeyRequest,
        answer=IssuedKey,
        act=lambda admin, asked: admin.keys.create(asked.operator, asked.given),
    ),
    AdminRoute(
        name="limitKey",
        method="POST",
        path="/keys/{id}:limit",
        summary="Change limits of a key.",
        given=LimitChanges,
        answer=KeyLine,
        act=lambda admin, asked: admin.keys.limit(asked.operator, asked.ids["id"], asked.given),
    ),
    AdminRoute(
        name="rotateKey",
        method="POST",
        path="/keys/{id}:rotate",
        summary="Replace a key, whose caller and rights stay. The secret of the new one is in this answer alone.",
        given=RotateRequest,
        optional=True,
        answer=IssuedKey,
        act=lambda admin, asked: admin.keys.rotate(asked.operator, asked.ids["id"], asked.given),
    ),
    AdminRoute(
        name="revokeKey",
        method="POST",
        path="/keys/{id}:revoke",
        summary="Revoke a key for good, and with stop end what it began.",
        given=RevokeRequest,
        optional=True,
        answer=RevokedKey,
        act=lambda admin, asked: admin.keys.revoke(asked.operator, asked.ids["id"], asked.given),
    ),
    AdminRoute(
        name="showBegun",
        method="GET",
        path="/keys/{id}/begun",
        summary="Show what one key began that goes on: streams, webhooks and tasks.",
        answer=KeyBeginnings,
        act=lambda admin, asked: admin.keys.began(asked.operator, asked.ids["id"]),
    ),
    AdminRoute(
        name="showKey",
        method="GET",
        path="/keys/{id}",
        summary="Show one key, without its secret.",
        answer=KeyLine,
        act=lambda admin, asked: admin.keys.show(asked.operator, asked.ids["id"]),
    ),
    AdminRoute(
        name="listAudit",
        method="GET",
        path="/audit",
        summary="List entries of the audit trail, oldest first.",
        given=AuditQuery,
        answer=AuditLines,
        act=lambda admin, asked: admin.records.audit(asked.operator, asked.given),
    ),
    AdminRoute(
        name="listWebhooks",
        method="GET",
        path="/webhooks",
        summary="List webhook deliveries: pending and dead ones oldest first, delivered ones newest first.",
        given=DeliveryQuery,
        answer=DeliveryLines,
        act=lambda admin, asked: admin.webhooks.list(asked.operator, asked.given),
    ),
    AdminRoute(
        name="redeliverWebhooks",
        method="POST",
        path="/webhooks:redeliver",
        summary="Send webhook deliveries again: dead ones, with `pending` and `delivered` also such ones.",
        given=DeadLetters,
        answer=DeadLettersChanged,
        act=lambda admin, asked: admin.webhooks.redeliver(asked.operator, asked.given),
    ),
    AdminRoute(
        name="deleteWebhooks",
        method="POST",
        path="/webhooks:delete",
        summary="Delete dead webhook deliveries, and with `pending` also those that are not under way.",
        given=DeadLetters,
        answer=DeadLettersChanged,
        act=lambda admin, asked: admin.webhooks.drop(asked.operator, asked.given),
    ),
    AdminRoute(
        name="listPausedHosts",
        method="GET",
        path="/webhooks/paused",
        summary="List the hosts to which no webhook is sent, because an operator has paused them.",
        answer=PausedHostLines,
        act=lambda admin, asked: admin.webhooks.paused(asked.operator),
    ),
    AdminRoute(
        name="pauseHost",
        method="POST",
        path="/webhooks:pause",
        summary="Send nothing to a host from now on. Deliveries to it wait.",
        given=HostName,
        answer=HostChanged,
        act=lambda admin, asked: admin.webhooks.pause(asked.operator, asked.given),
    ),
    AdminRoute(
        name="resumeHost",
        method="POST",
        path="/webhooks:resume",
        summary="Send to a paused host again.",
        given=HostName,
        answer=HostChanged,
        act=lambda admin, asked: admin.webhooks.resume(asked.operator, asked.given),
    ),
    AdminRoute(
        name="showWebhook",
        method="GET",
        path="/webhooks/{id}",
        summary="Show one webhook delivery by its number or its webhook-id.",
        answer=DeliveryReport,
        act=lambda admin, asked: admin.webhooks.show(asked.operator, asked.ids["id"]),
    ),
    AdminRoute(
        name="listAgents",
        method="GET",
        path="/agents",
        summary="List the agents that are served, with the numbers of their tasks.",
        answer=AgentLines,
        act=lambda admin, asked: admin.list_agents(asked.operator, asked.facts),
    ),
    AdminRoute(
        name="listWorkers",
        method="GET",
        path="/workers",
        summary="List the agents that workers serve, and whether a worker is there.",
        answer=WorkerLines,
        act=lambda admin, asked: admin.list_workers(asked.operator, asked.facts),
    ),
    AdminRoute(
        name="listUpstreams",
        method="GET",
        path="/upstreams",
        summary="List the agents of other servers, with their breakers and the outcomes of calls.",
        answer=UpstreamLines,
        act=lambda admin, asked: admin.list_upstreams(asked.operator, asked.facts),
    ),
    AdminRoute(
        name="listReplicas",
        method="GET",
        path="/replicas",
        summary="List the servers that are alive on the store.",
        answer=ReplicaLines,
        act=lambda admin, asked: admin.list_replicas(asked.operator),
    ),
    AdminRoute(
        name="showStats",
        method="GET",
        path="/stats",
        summary="Show how many tasks are in each state, and how many webhook calls are pending.",
        answer=Stats,
        act=lambda admin, asked: admin.show_stats(asked.operator, asked.facts),
    ),
    AdminRoute(
        name="showUsage",
        method="GET",
        path="/usage",
        summary="Show what callers used, of which agents and models, by day, and what it cost.",
        given=UsageQuery,
        answer=UsageReport,
        act=lambda admin, asked: admin.show_usage(asked.operator, asked.given),
    ),
    *REMOTE_ROUTES,
)
"""All operations. A path with a suffix stands before the one that would match it as an id."""
