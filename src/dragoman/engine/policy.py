"""Policy: the checks before anything is written, the identity of repeated calls, quotas and page tokens.

Invariant: pure. Raises A2AError only.
"""

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.json_bounds import MAX_TEXT
from dragoman.engine.bounds import MAX_TOKENS_PER_REPORT
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.errors import (
    ContentTypeNotSupported,
    InvalidParams,
    PushNotificationNotSupported,
    TooManyRequests,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.events import Intervened, seq_and_frame
from dragoman.model.ids import timestamp
from dragoman.model.message import Part, Role
from dragoman.model.operations import Call, CompleteTask, SendMessage, UpdateStatus
from dragoman.model.principal import Principal
from dragoman.model.task import TERMINAL, Record, TaskState
from dragoman.store.api import AGENT_ABSENT_S, Dedupe, OverQuota, Quota
from dragoman.store.members import TeamMembers

LIST_OFFSET_MAX = 10_000
"""The largest offset for ListTasks. Deeper pages need a page token."""

LARGE_CALL_BYTES = 64 * 1024
"""From this size on, a call's message is digested in a thread instead of on the loop."""

DAY_MS = 86_400_000

OPEN_RETRY_S = 60
"""`Retry-After` where the true delay depends on how long tasks take."""

_Milliseconds = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class EngineSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings for the engine.

    `suspend_max_s` is how long a suspended agent stays in memory while its task waits for the caller; after that an
    answer starts the agent again with the recorded answers. `dedupe_s` is how long a repeated call is recognised.
    `retry_s` is the pause before a write that the store could not take is tried again. `max_open_tasks` and
    `max_daily_tasks` apply to each principal; 0 sets no limit. `max_page_bytes` bounds how much is read for one page of
    ListTasks. `poll_s` is how often the engine reads what other engines on the same store wrote to the tasks that it
    has in memory; 0 says that there are no others. While the bus brings hints it does so every `healthy_poll_s`.
    `claim_s` is how often it looks for what nobody sees to: delegations that have to end, effects that got lost, and if
    there are others, tasks that nobody alive works on. `agent_absent_s` is how long tasks wait for an agent that nobody
    serves. `max_text` bounds each text that an agent says, and `max_steps` the steps and sleeps that a task records.
    The members of `sharing_teams` read each other's tasks.
    """

    blocking_timeout_s: float = 300.0
    cancel_grace_s: float = 5.0
    keepalive_s: float = 15.0
    suspend_max_s: float = 3600.0
    dedupe_s: float = 600.0
    retry_s: float = 0.5
    max_open_tasks: int = 0
    max_daily_tasks: int = 0
    max_page_bytes: int = 4 * 1024 * 1024
    poll_s: float = 0.0
    healthy_poll_s: float = 5.0
    claim_s: float = 1.0
    agent_absent_s: float = AGENT_ABSENT_S
    max_text: int = MAX_TEXT
    max_tokens_per_report: int = MAX_TOKENS_PER_REPORT
    suspend_after_s: float = 5.0
    max_steps: int = 10_000
    sharing_teams: frozenset[str] = frozenset()


def check_send(profile: Profile, send: SendMessage, *, pushes: bool = False) -> AgentSkill | None:
    """Check that the agent takes this message, and return the skill that shall run; None if the agent has none.

    `pushes` says that the server calls webhooks. Raises InvalidParams, ContentTypeNotSupported (A2A 1.0 §3.1.1) or
    PushNotificationNotSupported (§3.3.4).
    """
    message = send.message
    if message.role is not Role.USER:
        raise InvalidParams("message.role", "a message to an agent has the role ROLE_USER (0.3: user)")
    if not message.parts:
        raise InvalidParams("message.parts", "must contain at least one part")
    if send.push_config is not None and not (pushes and profile.pushes):
        raise PushNotificationNotSupported
    if send.skill is None and not send.skills:
        skills = profile.skills or profile.extended_skills
        skill = skills[0] if skills else None
    else:
        skill = _named_skill(profile, send)
    modes = (skill.input_modes if skill is not None else ()) or profile.input_modes
    if "*/*" not in modes:
        for index, part in enumerate(message.parts):
            if not _accepts(modes, media_type(part)):
                raise ContentTypeNotSupported(
                    f"message.parts[{index}]: {profile.id} does not accept {media_type(part)}: send {', '.join(modes)}"
                )
    wanted = send.accepted_output_modes
    gives = (skill.output_modes if skill is not None else ()) or profile.output_modes
    if wanted and not (any(_accepts(wanted, mode) for mode in gives) or any(_accepts(gives, mode) for mode in wanted)):
        raise ContentTypeNotSupported(
            f"configuration.acceptedOutputModes: {profile.id} gives none of them: accept {', '.join(gives)}"
        )
    return skill


def _named_skill(profile: Profile, send: SendMessage) -> AgentSkill:
    known = {skill.id: skill for skill in (*profile.skills, *profile.extended_skills)}
    named = (("metadata.skill", send.skill),) if send.skill is not None else ()
    for field, name in (*named, *(("configuration.skills", name) for name in send.skills)):
        if name not in known:
            shown = ", ".join(skill.id for skill in profile.skills)
            raise InvalidParams(field, f"{profile.id} has no skill {name[:100]!r}: use {shown or 'none'}")
    if send.skill is not None:
        return known[send.skill]
    return known[send.skills[0]]


def media_type(part: Part) -> str:
    """The declared media type of a part, else the one that its kind of content implies."""
    if part.media_type:
        return _bare(part.media_type)
    if part.text is not None:
        return "text/plain"
    if part.raw is not None or part.url is not None:
        return "application/octet-stream"
    return "application/json"


def _accepts(modes: tuple[str, ...], mode: str) -> bool:
    if mode in modes:
        return True
    bare = _bare(mode)
    kind = bare.partition("/")[0]
    return any(given in ("*/*", "*", bare, f"{kind}/*", kind) for given in map(_bare, modes))


def _bare(mode: str) -> str:
    return mode.split(";", 1)[0].strip().lower()


def dedupe(call: Call, send: SendMessage, expires_ms: int) -> Dedupe | None:
    """The dedupe entry by which a repeat of this call is recognised; None if the call has no unique key.

    The key is an `Idempotency-Key`, or a message id that is a UUID. Other message ids do not promise uniqueness.
    """
    if call.idempotency_key is not None:
        kind, name = "k", call.idempotency_key
    elif _UUID.fullmatch(send.message.message_id):
        kind, name = "m", send.message.message_id
    else:
        return None
    key = blake2b(f"{kind}\0{call.principal.id}\0{call.agent}\0{name}".encode(), digest_size=16)
    # A dialect gives a message without an id a fresh one each time, so the id does not count as part of the params.
    message = send.message if kind == "m" else replace(send.message, message_id="")
    params: tuple[object, ...] = (message, send.metadata, send.skill, send.skills, *send.earlier)
    if send.push_config is not None:
        params = (*params, send.push_config)
    try:
        spelled = msgspec.msgpack.encode(params)
    except OverflowError:  # an integer beyond 64 bits
        spelled = msgspec.json.encode(params)
    return Dedupe(key.digest(), blake2b(spelled, digest_size=16).digest(), expires_ms)


def end_of(report: CompleteTask | UpdateStatus) -> TaskState | None:
    """The state in which a worker's report ends its task; None if the task goes on."""
    if isinstance(report, CompleteTask):
        return TaskState.COMPLETED
    return report.state if report.state in TERMINAL else None


def repeats(record: Record, report: CompleteTask | UpdateStatus) -> bool:
    """Whether a report on an ended task matches how it ended. Then it is a repeat of the report that ended it."""
    if isinstance(report, CompleteTask):
        given = [artifact.parts for artifact in report.artifacts]
        kept = [artifact.parts for artifact in record.artifacts]
        return record.state is TaskState.COMPLETED and (not given or kept[-len(given) :] == given)
    said = record.status.message.parts if record.status.message is not None else ()
    return record.terminal and record.state is report.state and said == report.parts


def quota(settings: EngineSettings, principal: Principal, now_ms: int) -> Quota | None:
    """The quota of a caller, whose key and team may have limits; None if there is no limit."""
    open_tasks, daily_tasks = settings.max_open_tasks, settings.max_daily_tasks
    limits, shared = principal.limits, principal.team_limits
    if limits is not None:
        open_tasks, daily_tasks = limits.max_open_tasks or open_tasks, limits.max_daily_tasks or daily_tasks
    day = now_ms // DAY_MS
    if shared is not None and (shared.max_open_tasks or shared.max_daily_tasks):
        most = shared.max_open_tasks or 0, shared.max_daily_tasks or 0
        return Quota(open_tasks, daily_tasks, day, TeamMembers(principal.team), *most)
    return Quota(open_tasks, daily_tasks, day) if open_tasks or daily_tasks else None


def over_quota(over: OverQuota, quota: Quota | None, now_ms: int) -> TooManyRequests:
    """The error for a caller that has used up a limit of its quota, or whose team has."""
    assert quota is not None  # nothing else is refused
    limit, who = over.limit, "your team has" if over.of_team else "you have"
    if limit == "max_daily_tasks":
        most = quota.team_daily_tasks if over.of_team else quota.max_daily_tasks
        made = "1 task" if most == 1 else f"{most} tasks"
        return TooManyRequests(
            limit, f"{who} made {made} today, which is the limit: go on after midnight UTC", until_midnight_s(now_ms)
        )
    most = quota.team_open_tasks if over.of_team else quota.max_open_tasks
    have = "1 task that has" if most == 1 else f"{most} tasks that have"
    return TooManyRequests(limit, f"{who} {have} not ended, which is the limit: await or cancel one", OPEN_RETRY_S)


def intervention(call: Call, action: Literal["answer", "cancel"], now_ms: int) -> Intervened:
    """The event that tells in a task's log which operator made the call."""
    assert call.operator is not None
    return Intervened(call.operator, action, timestamp(now_ms), call.reason)


def over_tokens(most: int, now_ms: int, *, of_team: bool = False) -> TooManyRequests:
    """The error for a caller whose runs, or those of whose team, have used the `most` tokens of a day."""
    return TooManyRequests(
        "max_daily_tokens",
        f"{'your team has' if of_team else 'you have'} used the {most} tokens of today: go on after midnight UTC",
        until_midnight_s(now_ms),
    )


def until_midnight_s(now_ms: int) -> int:
    """How many seconds it takes until midnight UTC, rounded up."""
    return -(-(DAY_MS - now_ms % DAY_MS) // 1000)


def stopping() -> Unavailable:
    """The error for a call that a server which is stopping does not take, or cannot finish."""
    return Unavailable("the server is stopping: send again in a moment")


UNWRITTEN_TEXT = "The server failed: the end of the run could not be written."
"""The text for a task whose run had an end that the store did not take."""

UNREADABLE_TEXT = "The server's record of the task is damaged and cannot be read."
"""The status of a task that was set aside, and the reason why an operation on one is refused."""


def unreadable(task_id: str) -> UnsupportedOperation:
    """Build the refusal of an operation on a task that cannot be read."""
    fix = "GetTask says where it stands; send the message without taskId to begin a new task"
    return UnsupportedOperation(f"Task {task_id} cannot be used: the server's record of it is damaged. {fix}")


def unreadable_answer() -> UnsupportedOperation:
    """Build the refusal of a repeated call whose answer cannot be read. It must not act twice."""
    fix = "to have it done once more, send it with another messageId and Idempotency-Key"
    return UnsupportedOperation(
        f"This message was answered before, and the server's copy of the answer is damaged: {fix}"
    )


def page_token(status_ms: int, task_id: str) -> str:
    """An opaque token for the place where the next page of ListTasks begins."""
    return urlsafe_b64encode(msgspec.json.encode((status_ms, task_id))).decode().rstrip("=")


def read_page_token(token: str) -> tuple[int, str]:
    """The place that a page token stands for. Raises InvalidParams if this server did not make it."""
    try:
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        return msgspec.json.decode(raw, type=tuple[_Milliseconds, str])
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidParams("pageToken", "not one that this server gave: leave it out for the first page") from error


def read_after(after: str, last_seq: int) -> tuple[int, int]:
    """The last event and frame that a caller saw of a log that ends at `last_seq`. Raises InvalidParams."""
    seq, frame = seq_and_frame(after)
    if seq > last_seq:
        raise InvalidParams("Last-Event-ID", f"{seq} is beyond the end: the task's log ends at {last_seq}")
    return seq, frame
