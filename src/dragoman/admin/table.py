"""The table of all questions and acts of operators that concern a server and its store.

Invariant: each name stands once. A path with a suffix stands before the one that would match it as an id.
"""

from dragoman.admin.audit import LIST_AUDIT
from dragoman.admin.keys import CREATE_KEY, LIMIT_KEY, LIST_KEYS, REVOKE_KEY, ROTATE_KEY, SHOW_BEGUN, SHOW_KEY
from dragoman.admin.logs import READ_CONTENT, READ_LOG, READ_MOMENT, READ_TREE, READ_WIRE
from dragoman.admin.overview import (
    FOLLOW_CHANGES,
    LIST_AGENTS,
    LIST_REPLICAS,
    LIST_UPSTREAMS,
    LIST_WORKERS,
    SHOW_STATS,
)
from dragoman.admin.question import AnyQuestion
from dragoman.admin.tasks import (
    ANSWER_TASK,
    ASK_UPSTREAM,
    CANCEL_TASK,
    CANCEL_TASKS,
    DELETE_TASK,
    DELETE_TASKS,
    LIST_CONVERSATIONS,
    LIST_TASKS,
    SEND_AGAIN,
    SHOW_TASK,
)
from dragoman.admin.usage import SHOW_USAGE
from dragoman.admin.webhooks import (
    DELETE_WEBHOOKS,
    LIST_PAUSED_HOSTS,
    LIST_WEBHOOKS,
    PAUSE_HOST,
    READ_DELIVERIES,
    REDELIVER_WEBHOOKS,
    RESUME_HOST,
    SHOW_WEBHOOK,
)

QUESTIONS: tuple[AnyQuestion, ...] = (
    *(LIST_TASKS, LIST_CONVERSATIONS, CANCEL_TASKS, CANCEL_TASK, ANSWER_TASK, SEND_AGAIN, DELETE_TASKS, DELETE_TASK),
    *(SHOW_TASK, READ_LOG, FOLLOW_CHANGES, READ_CONTENT, READ_MOMENT, READ_TREE, ASK_UPSTREAM, READ_DELIVERIES),
    *(READ_WIRE, LIST_KEYS, CREATE_KEY, LIMIT_KEY, ROTATE_KEY, REVOKE_KEY, SHOW_BEGUN, SHOW_KEY, LIST_AUDIT),
    *(LIST_WEBHOOKS, REDELIVER_WEBHOOKS, DELETE_WEBHOOKS, LIST_PAUSED_HOSTS, PAUSE_HOST, RESUME_HOST, SHOW_WEBHOOK),
    *(LIST_AGENTS, LIST_WORKERS, LIST_UPSTREAMS, LIST_REPLICAS, SHOW_STATS, SHOW_USAGE),
)
