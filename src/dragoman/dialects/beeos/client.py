"""The client's side of BeeOS's dialect: its own method names, parts tagged `kind`, streams of bare frames.

Invariant: a plain call is that of BeeOS's text. Flat tasks are read as in that text, with fewer members than 0.3
requires. A stream's frames may have a JSON-RPC envelope or not, since its documentation says both.
"""

from msgspec.structs import replace

from dragoman.dialects import vendors
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.beeos.encode import TAG, Json
from dragoman.dialects.beeos.errors import CODES, WORDS
from dragoman.dialects.client import answers, objects, refusals
from dragoman.dialects.client.encode import no_earlier
from dragoman.dialects.client.scalars import members
from dragoman.dialects.v03.encode import STATES
from dragoman.dialects.vendors import (
    Methods,
    VendorMethod,
    encode_artifact,
    encode_calls,
    encode_part,
    history_params,
    lacks,
    message,
    no_params,
    present,
    read_by,
    task_params,
    webhook,
    webhook_params,
)
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidParams
from dragoman.model.operations import (
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
    UpdateStatus,
)
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update

SYSTEM = "BeeOS"


def _send(sent: SendMessage) -> Json:
    no_earlier(sent, SYSTEM)
    configuration = vendors.configuration(sent)
    if sent.push_config is not None:
        configuration["pushNotificationConfig"] = webhook(sent.push_config)
    return {
        "message": message(sent.message, TAG),
        "configuration": configuration,
        "metadata": vendors.metadata(sent),
    }


def _page(asked: ListTasks) -> Json:
    """Encode a request for a page. The token of a page is its offset, as `_read_page` returns it."""
    if asked.context_id is not None or asked.state is not None or asked.status_after_ms is not None:
        raise lacks(SYSTEM, "choice among tasks", "list them all, by page_size and page_token")
    return {"limit": asked.page_size, "offset": _offset(asked) or None}


def _offset(asked: ListTasks) -> int:
    token = asked.page_token
    if not token:
        return asked.offset
    if not (token.isascii() and token.isdigit() and len(token) < 16):
        raise InvalidParams("pageToken", "must be the token of BeeOS's last page, which is a number")
    return int(token)


def _webhook_id(asked: GetPushConfig | DeletePushConfig) -> Json:
    return {"id": asked.task_id, "pushNotificationConfigId": asked.id}


def _completion(done: CompleteTask) -> Json:
    artifacts = [present(encode_artifact(each, TAG)) for each in done.artifacts]
    return {"id": done.id, "artifacts": artifacts, "lease": done.lease}


def _status(said: UpdateStatus) -> Json:
    """Encode a status: plain text is a string, as in BeeOS's text; any other message has parts."""
    status: Json = {"state": STATES[said.state]}
    if len(said.parts) == 1 and said.parts[0].text and said.parts[0].metadata is None:
        status["message"] = said.parts[0].text
    elif said.parts:
        status["message"] = {"role": "agent", "parts": [encode_part(each, TAG) for each in said.parts]}
    if (told := said.progress) is not None:
        status["progress"] = present({"current": told.current, "total": told.total, "message": told.message})
    return {"id": said.id, "status": status, "lease": said.lease}


def _answer(operation: Operation, value: object) -> Answer:
    match operation:
        case ListTasks():
            return _read_page(operation, value)
        case CompleteTask() | UpdateStatus():
            return answers.task(value)
        case _:
            return answers.answer(operation, value)


def _read_page(operation: ListTasks, value: object) -> TaskList:
    """Read `{"tasks", "total", "limit", "offset"}`, or a bare list; the next page begins after this one."""
    page = answers.task_list(value)
    end = _offset(operation) + len(page.tasks)
    more = bool(page.tasks) and (
        len(page.tasks) >= operation.page_size if page.total_size is None else end < page.total_size
    )
    return replace(page, next_page_token=str(end) if more else "")


def _update(value: object) -> tuple[Update, ...] | A2AError:
    """Read a frame: BeeOS's own by `type`, or one of A2A's. Returns the error that a frame carries."""
    given = members(value, _EXPECTED)
    if "jsonrpc" in given:
        if given.get("error") is not None:
            return refusals.of(given["error"], 0, _ERRORS, _WORDS)
        given = members(given.get("result"), _EXPECTED)
    match given.get("type"):
        case "status" | "task_status":
            return (_status_update(given),)
        case "artifact_delta" | "agent_reply_delta":
            return (_artifact_update(given, append=True),)
        case "artifact" | "agent_reply" | "task_artifact":
            return (_artifact_update(given, append=False),)
        case "message":
            return (objects.message(given.get("message")),)
        case "error":
            return refusals.of(value, 0, _ERRORS, _WORDS)
        case None:
            return (objects.update(given),)
        case _:
            return ()  # a type that BeeOS has not documented


def _status_update(given: Json) -> StatusUpdate:
    """Read a status; the task's progress may be in it, as in `UpdateStatus`."""
    found = given.get("status")
    told = objects.status_update(given)
    return replace(told, progress=objects.progress(found.get("progress"))) if isinstance(found, dict) else told


def _artifact_update(given: Json, *, append: bool) -> ArtifactUpdate:
    """Read an artifact or a chunk of one. Without an id it is the task's only artifact. Its text may be bare."""
    held = given.get("delta" if append else "artifact")
    if held is None and isinstance(given.get("text"), str):
        held = {"parts": [given["text"]]}
    told = objects.artifact_update({**given, "artifact": held})
    return replace(told, append=append, last_chunk=not append)


_EXPECTED = "a frame with a type: status, artifact_delta, artifact or error"

_ERRORS = {
    **refusals.CODES,
    -32000: errors.TaskNotFound,
    -32001: errors.AgentNotFound,
    -32002: errors.AgentOffline,
    -32003: errors.TaskTimeout,
    CODES[errors.TooManyRequests]: errors.TooManyRequests,
}

_WORDS = {word: kind for kind, word in WORDS.items() if kind is not errors.LeaseLost} | {
    "unsupported_operation": errors.UnsupportedOperation,
    "invalid_token": errors.Unauthorized,
    "missing_token": errors.Unauthorized,
    "missing_param": errors.InvalidParams,
    "internal_error": errors.InternalError,
}
"""BeeOS's error reference, from word to error."""

_STATUSES = {**refusals.STATUSES, 404: errors.AgentNotFound, 503: errors.AgentOffline}
"""The meaning of its gateway's statuses if the body says nothing better."""

METHODS: Methods = {
    SendMessage: VendorMethod("SendMessage", _send),
    StreamMessage: VendorMethod("SendStreamingMessage", _send),
    GetTask: VendorMethod("GetTask", history_params),
    ListTasks: VendorMethod("ListTasks", _page),
    CancelTask: VendorMethod("CancelTask", task_params),
    Subscribe: VendorMethod("SubscribeToTask", task_params),
    CreatePushConfig: VendorMethod("SetPushNotificationConfig", webhook_params),
    GetPushConfig: VendorMethod("GetPushNotificationConfig", _webhook_id),
    ListPushConfigs: VendorMethod("ListPushNotificationConfigs", lambda operation: {"id": operation.task_id}),
    DeletePushConfig: VendorMethod("DeletePushNotificationConfig", _webhook_id),
    GetExtendedCard: VendorMethod("agent/getAuthenticatedExtendedCard", no_params),
    CompleteTask: VendorMethod("CompleteTask", _completion),
    UpdateStatus: VendorMethod("UpdateStatus", _status),
}

TONGUE = Tongue(
    name="beeos",
    rpc=encode_calls(SYSTEM, METHODS),
    **read_by(_answer, _update, _ERRORS, _WORDS, _STATUSES),
    headers={"A2A-Version": "1.0"},
    enveloped=False,
    deltas=True,
)
