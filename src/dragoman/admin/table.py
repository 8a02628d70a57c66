"""The table of all questions and acts of operators that concern a server and its store.

Invariant: each name stands once. A path with a suffix stands before the one that would match it as an id.
"""

from dragoman.admin import (
    audit,
    budgets,
    bulk,
    keys,
    logs,
    overview,
    principals,
    search,
    series,
    switches,
    tasks,
    usage,
    webhooks,
)
from dragoman.admin.agents import AGENT_QUESTIONS
from dragoman.admin.question import AnyQuestion

QUESTIONS: tuple[AnyQuestion, ...] = (
    *(tasks.LIST_TASKS, tasks.LIST_CONVERSATIONS, tasks.LIST_INBOX, tasks.CANCEL_TASKS, tasks.CANCEL_TASK),
    *(tasks.ANSWER_TASK, tasks.SEND_AGAIN, tasks.DELETE_TASKS, tasks.DELETE_TASK, tasks.SHOW_TASK, logs.READ_LOG),
    *(
        overview.FOLLOW_CHANGES,
        logs.READ_CONTENT,
        logs.RECORD_TASK,
        logs.READ_MOMENT,
        logs.READ_TREE,
        tasks.ASK_UPSTREAM,
    ),
    *(webhooks.READ_DELIVERIES, logs.READ_WIRE, logs.SUMMARIZE_WIRE, keys.LIST_KEYS, keys.CREATE_KEY),
    *(keys.LIMIT_KEY, keys.ROTATE_KEY),
    *(keys.REVOKE_KEY, keys.SHOW_BEGUN, keys.SHOW_KEY, audit.LIST_AUDIT),
    *(webhooks.LIST_WEBHOOKS, webhooks.GROUP_WEBHOOKS),
    *(webhooks.REDELIVER_WEBHOOKS, webhooks.DELETE_WEBHOOKS, webhooks.LIST_PAUSED_HOSTS, webhooks.PAUSE_HOST),
    *(webhooks.RESUME_HOST, webhooks.SHOW_WEBHOOK, overview.LIST_AGENTS, overview.LIST_WORKERS),
    *(overview.LIST_UPSTREAMS, overview.LIST_REPLICAS, overview.SHOW_STATS, usage.SHOW_USAGE, budgets.LIST_BUDGETS),
    *(switches.DRAIN_AGENT, switches.DISABLE_AGENT, switches.ENABLE_AGENT),
    *(switches.DRAIN_MEMBER, switches.DISABLE_MEMBER, switches.ENABLE_MEMBER),
    *(principals.EXPORT_PRINCIPAL, principals.DELETE_PRINCIPAL),
    *(search.SEARCH, series.SHOW_SERIES, bulk.START_BULK, bulk.LIST_BULK, bulk.STOP_BULK),
    *AGENT_QUESTIONS,
)
