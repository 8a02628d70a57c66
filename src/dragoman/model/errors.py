"""Every error a caller can meet, in protocol terms.

    A2AError
    ├── ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError      JSON-RPC 2.0 §5.1
    ├── TaskNotFound, TaskNotCancelable, PushNotificationNotSupported,
    │   UnsupportedOperation (QuestionClosed), ContentTypeNotSupported, InvalidAgentResponse,
    │   ExtendedAgentCardNotConfigured, ExtensionSupportRequired, VersionNotSupported  A2A 1.0 §3.3.2
    ├── AgentNotFound, NotFound, MethodNotAllowed                                      no such agent, path, verb
    ├── Conflict (VersionConflict), an InvalidParams                                   HTTP 409, 412
    ├── UnsupportedMediaType, PayloadTooLarge, RequestTimeout                          HTTP 415, 413, 408
    ├── AgentOffline, TaskTimeout, AgentFailed                                         BeeOS, Evo AI
    ├── TaskNotEnded, an UnsupportedOperation                                          OpenAI Responses
    ├── LeaseLost                                                                      a worker's task went elsewhere
    ├── Unauthorized, Forbidden, TooManyRequests (BudgetExhausted)                     HTTP 401, 403, 429
    └── Unavailable                                                      draining, store full, agent busy: try again

Invariant: a message names the thing and the fix, and never the text of an exception. Codes are per-dialect tables.
"""

from collections.abc import Sequence


class A2AError(Exception):
    """A caller's request that cannot be answered with a result. The caller reads `message`.

    `retry_after_s` says after how many seconds to try again, where that is known. `untaken`: another server gave it,
    which has done nothing (HTTP 429, or 503 with `Retry-After`). `repeated`: it answers the repeat of a call that may
    have been carried out before.
    """

    retry_after_s: int | None = None
    untaken: bool = False
    repeated: bool = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the ErrorInfo, string to string (google.rpc.ErrorInfo)."""
        return {}


class ParseError(A2AError):
    """The body is not JSON."""


class InvalidRequest(A2AError):
    """The body is JSON, but not a request."""


class MethodNotFound(A2AError):
    """The server knows no such method. `fix` names those it knows."""

    def __init__(self, method: str, fix: str = "") -> None:
        super().__init__(f"method {method[:100]!r} is not known here" + (f": {fix}" if fix else ""))
        self.method = method

    @property
    def metadata(self) -> dict[str, str]:
        return {"method": self.method[:100]}


class InvalidParams(A2AError):
    """A field is missing or wrong. `violations` names each with the fix."""

    def __init__(self, field: str, description: str, *more: tuple[str, str]) -> None:
        self.violations: Sequence[tuple[str, str]] = ((field, description), *more)
        super().__init__("; ".join(f"{f}: {d}" if f else d for f, d in self.violations))


class Conflict(InvalidParams):
    """A field contradicts what is there: its id is taken, say. Only operators' acts meet it."""


class VersionConflict(Conflict):
    """The object has another version than the one that was to be changed (RFC 9110 §13.1.1, If-Match)."""

    def __init__(self, version: int) -> None:
        super().__init__("version", f"is {version} by now: read it again, and repeat the change if it still fits")


class InternalError(A2AError):
    """The server itself failed. `reference` finds the cause in its log."""

    def __init__(self, reference: str = "") -> None:
        super().__init__("Internal error" + (f" (reference {reference})" if reference else ""))
        self.reference = reference


class TaskNotFound(A2AError):
    """The task does not exist or belongs to somebody else; the caller cannot tell which (A2A 1.0 §3.3.2)."""

    def __init__(self, task_id: str) -> None:
        super().__init__("Task not found")
        self.task_id = task_id

    @property
    def metadata(self) -> dict[str, str]:
        return {"taskId": self.task_id[:200]}


class TaskNotCancelable(A2AError):
    """The task has already ended (A2A 1.0 §3.1.5)."""

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(f"Task cannot be canceled: it is {state}")
        self.task_id = task_id
        self.state = state

    @property
    def metadata(self) -> dict[str, str]:
        return {"taskId": self.task_id, "state": self.state}


class PushNotificationNotSupported(A2AError):
    """The agent's card says `pushNotifications: false` (A2A 1.0 §3.3.4)."""

    def __init__(self) -> None:
        super().__init__("Push Notification is not supported: poll with GetTask or subscribe to the task")


class UnsupportedOperation(A2AError):
    """The agent does not offer the operation, or not in the task's present state (A2A 1.0 §3.3.2)."""


class QuestionClosed(UnsupportedOperation):
    """The message answers a question that is not open (any more): its task has gone on, or has ended."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id} does not wait for an answer to that question: ask for the task")
        self.task_id = task_id


class TaskNotEnded(UnsupportedOperation):
    """The task works, or waits for its caller, and so cannot be deleted (OpenAI Responses)."""


class ContentTypeNotSupported(A2AError):
    """The agent does not take a part's media type, or the caller accepts none of the agent's (A2A 1.0 §3.3.2)."""


class InvalidAgentResponse(A2AError):
    """An agent answered with something that is not a valid answer (A2A 1.0 §3.3.2)."""


class ExtendedAgentCardNotConfigured(A2AError):
    """The card promises an extended card that does not exist (A2A 1.0 §3.1.11)."""


class ExtensionSupportRequired(A2AError):
    """The agent requires an extension that the caller does not declare (A2A 1.0 §3.3.4)."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"the agent requires the extension {uri}: name it in the A2A-Extensions header")
        self.uri = uri

    @property
    def metadata(self) -> dict[str, str]:
        return {"uri": self.uri}


class VersionNotSupported(A2AError):
    """The server does not speak this `A2A-Version` (A2A 1.0 §3.6.2). `fix` replaces the advice to use another one."""

    def __init__(self, version: str, supported: Sequence[str] = ("1.0", "0.3"), fix: str = "") -> None:
        fix = fix or f"use {' or '.join(supported)}"
        super().__init__(f"A2A-Version {version[:20]!r} is not supported here: {fix}")
        self.version = version
        self.supported = tuple(supported)

    @property
    def metadata(self) -> dict[str, str]:
        return {"version": self.version[:20], "supportedVersions": ",".join(self.supported)}


class AgentNotFound(A2AError):
    """The server has no agent with this id."""

    def __init__(self, agent: str) -> None:
        here = f"no agent {agent[:100]!r} here" if agent else "no agent answers where the path names none"
        super().__init__(f"{here}: GET /agents lists them")
        self.agent = agent


class NotFound(A2AError):
    """No such path."""


class MethodNotAllowed(A2AError):
    """The path exists, but the HTTP method is not one of `allowed`. `usage` explains how to use the path."""

    def __init__(self, allowed: Sequence[str], usage: str = "") -> None:
        super().__init__(f"method not allowed here: use {' or '.join(allowed)}" + (f" ({usage})" if usage else ""))
        self.allowed = tuple(allowed)


class UnsupportedMediaType(A2AError):
    """The body's Content-Type is not JSON. This check keeps web forms from posting."""

    def __init__(self, content_type: str) -> None:
        super().__init__(f"Content-Type {content_type[:100]!r} is not JSON: send application/json")


class PayloadTooLarge(A2AError):
    """The body is over the limit."""

    def __init__(self, max_body_bytes: int) -> None:
        super().__init__(f"the body is larger than the {max_body_bytes} bytes allowed (max_body_bytes)")
        self.max_body_bytes = max_body_bytes


class RequestTimeout(A2AError):
    """The request stopped arriving, or arrived too slowly (RFC 9110 §15.5.9)."""


class Unavailable(A2AError):
    """Try again later: the server is stopping, its store cannot write, or an agent elsewhere takes no work at present.

    `retry_after_s` says after how many seconds. `task_id` is the task that was made and failed for this reason, if any.
    """

    retry_after_s: int

    def __init__(self, message: str, retry_after_s: int = 5, *, task_id: str = "") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.task_id = task_id

    @property
    def metadata(self) -> dict[str, str]:
        return {"taskId": self.task_id} if self.task_id else {}


class AgentOffline(A2AError):
    """The agent takes no work: it lives in worker processes, and none has been seen lately (BeeOS), it is switched, or
    the server that has the conversation cannot be reached.

    `why` says which, in words for any caller.
    """

    def __init__(self, agent: str, why: str = "no worker has been seen lately") -> None:
        super().__init__(f"agent {agent!r} is offline: {why}")
        self.agent = agent


class LeaseLost(A2AError):
    """A worker's lease is over: its task went to another worker, was canceled, or has ended."""

    def __init__(self) -> None:
        super().__init__("lease is over: the task went to another worker, or has ended; stop working on it")


class TaskTimeout(A2AError):
    """A blocking call took longer than its limit; the task continues (BeeOS, Evo AI)."""

    def __init__(self, task_id: str, timeout_s: float) -> None:
        super().__init__(f"the task is not done after {timeout_s:g} s: it goes on, ask for it by its id")
        self.task_id = task_id


class AgentFailed(A2AError):
    """The agent failed at the task (Evo AI). The caller reads `details`."""

    def __init__(self, task_id: str, details: str) -> None:
        super().__init__("Agent processing failed")
        self.task_id = task_id
        self.details = details


class Unauthorized(A2AError):
    """The caller sent no credentials (`missing`) or wrong ones. `scheme` goes into `WWW-Authenticate`."""

    def __init__(self, message: str, scheme: str = "Bearer", *, missing: bool = False) -> None:
        super().__init__(message)
        self.scheme = scheme
        self.missing = missing


class Forbidden(A2AError):
    """The caller is authenticated, but may not do this."""


class TooManyRequests(A2AError):
    """The caller is over a limit. `limit` is the setting's name.

    `retry_after_s` says when to try again; None if waiting does not help.
    """

    def __init__(self, limit: str, message: str, retry_after_s: int | None) -> None:
        super().__init__(f"{message} ({limit})")
        self.limit = limit
        self.retry_after_s = retry_after_s

    @property
    def metadata(self) -> dict[str, str]:
        again = {} if self.retry_after_s is None else {"retryAfterS": str(self.retry_after_s)}
        return {"limit": self.limit, **again}


class BudgetExhausted(TooManyRequests):
    """A budget has too little left for the task. `limit` is its id; `resets_at` is when its period ends, or empty."""

    def __init__(self, limit: str, message: str, retry_after_s: int | None, resets_at: str = "") -> None:
        super().__init__(limit, message, retry_after_s)
        self.resets_at = resets_at

    @property
    def metadata(self) -> dict[str, str]:
        return {**super().metadata, **({"resetsAt": self.resets_at} if self.resets_at else {})}
