"""The requests of the admin API, from the table of its routes."""

from msgspec.structs import fields

from dragoman.admin.question import PREFIX, AnyQuestion
from dragoman.bindings.admin.routes import routes
from dragoman.cli.topics.table import Section, TopicTable

NOTES = {
    "GET /tasks/{id}": "Where it stands, how its first message begins, its artifacts, usage, and `acting`.",
    "GET /tasks/{id}/log": "`event`, `end` and `pruned` are the events of the stream.",
    "GET /tasks/{id}/moment": "Messages, artifacts, state; of long texts the end.",
    "GET /tasks/{id}/tree": "Each task stands after its parent, at most 100 of them.",
    "POST /tasks/{id}:answer": (
        "`parts` as in A2A 1.0, or `approve` as true or false. It does not wait for what comes of it. With the id "
        "of a message as `question` it answers that question alone; if it is too late, the error says who was "
        "quicker."
    ),
    "POST /tasks:cancel": (
        "At most `limit` (100). At least one field is needed; `older_than_s` of 0 stands for every open task."
    ),
    "POST /tasks/{id}:send-again": "The answer is the new task's `id`.",
    "DELETE /tasks/{id}": "With `force` it is canceled before.",
    "POST /tasks:delete": (
        "At most `limit` (100). At least one field is needed. With `force` open tasks are canceled and deleted, too."
    ),
    "GET /conversations": (
        "With the state and time of the task that changed last, how many tasks (at most 1,000), and how the first "
        "message begins."
    ),
    "GET /search": (
        "Whatever has `q` in it: of the newest 20,000 tasks, and those whose id or context is `q`; `limit` (8) of "
        "each kind."
    ),
    "GET /inbox": (
        "The `task`, what it `asks` for (`question`, `approval`, `sign-in`), and the message that asks as "
        "`question`. `limit` of 0 only counts (`total`)."
    ),
    "POST /agents/{id}:disable": (
        "`running` is `cancel` (the default) or `finish`. The answer is the switch: `agent`, `state`, `running`, "
        "`reason`, `by`, `at`."
    ),
    "GET /audit": (
        "`key` is an id, `action` one such as `keys.create`, or `keys` for all that begin so. `text` is looked "
        "for in any field, which reads all entries until the page is full. The newest come first, with `forward` "
        "the oldest."
    ),
    "GET /webhooks": (
        "`state` is `pending`, `dead` or `delivered`; without it pending and dead ones. The next page of pending "
        "and dead ones comes `after` a number, that of delivered ones `before` one."
    ),
    "GET /webhooks/{id}": (
        "Its `status`, failed attempts, the last reason, when it is tried next, how many wait before and behind "
        "it. If it arrived: when, the HTTP status of the answer, after how many milliseconds, and the `obstacle` "
        "if it cannot be sent again."
    ),
    "POST /webhooks:redeliver": (
        "`numbers`, or `all` dead ones. With `pending` those that are not dead are tried now. With `delivered` "
        "(at most 200 numbers) those that arrived are sent once more: `again` counts them, and `refused` says why "
        "others are not. `missing` are the numbers of no known delivery; null if more than 200 were named."
    ),
    "POST /webhooks:delete": "`numbers`, or `all` dead ones.",
    "GET /webhooks/paused": "Since when, by whom, how many deliveries wait.",
    "GET /keys": "`state` is `active`, `expired` or `revoked`.",
    "POST /keys": "All but the name may be left out.",
    "GET /keys/{id}/begun": (
        "`streams` by server, `webhooks`, at most 100 `tasks` (`open_tasks` counts all), how many of its caller "
        "are `unknown_…`, and the `stop` that was asked for."
    ),
    "POST /keys/{id}:limit": "Null takes a limit away. Limits that are left out stay.",
    "POST /keys/{id}:rotate": (
        "The old key ends at once, or counts for another `overlap_s`. The new one is valid for `expires_s`, or as "
        "long as the old one was when it was made."
    ),
    "POST /keys/{id}:revoke": (
        "With `stop` the streams and webhooks that it began end, with `tasks` its open tasks, too. With `dry_run` "
        "nothing changes, and `began` says what would end. `force` is needed for the key of the request itself."
    ),
    "POST /messages:check": "The message is given as `text`.",
    "POST /remote/send": "`request` is a SendMessageRequest of A2A 1.0; it is sent in the agent's own dialect.",
    "POST /remote/examine": "A stream of `findings` so far, and all of them at the `end`.",
}
"""What summaries leave out, by method and path below the prefix."""


def make_table() -> TopicTable:
    """Each request with the fields of its query or body, and its name in the audit trail."""
    rows = (*map(_row, routes()), (f"`GET {PREFIX}/openapi.json`", "Describe all of this in OpenAPI 3.1."))
    return TopicTable(("Request", "What it does"), (Section("", rows),))


def _row(route: AnyQuestion) -> tuple[str, ...]:
    names = [] if route.given is None else [f"`{field.encode_name}`" for field in fields(route.given)]
    where = "Body" if route.has_body else "Query"
    given = f" {where}: {', '.join(names)}." if names else ""
    streams = " With `Accept: text/event-stream` a stream." if route.events and route.answer is not None else ""
    note = NOTES.get(f"{route.method} {route.path}", "")
    audit = f" Audit: `{route.action}`." if route.action and isinstance(route.action, str) else ""
    return f"`{route.method} {PREFIX}{route.path}`", f"{route.summary}{note and f' {note}'}{streams}{given}{audit}"
