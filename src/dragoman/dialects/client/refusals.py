"""Reads errors of the vendors' systems: by their error word, by code, or by HTTP status.

Invariant: any bytes give the nearest error of the tree, with the text that came; nothing is raised.
"""

import re
from collections.abc import Callable, Mapping

from dragoman.dialects import jsonrpc
from dragoman.dialects.client.scalars import Json, decode_answer, text_in, texts_in
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidAgentResponse

Kind = type[A2AError]

MAX_TEXT = 4096
"""Most characters of a text that are kept: it is shown to people and passed on to our own callers."""

CODES: Mapping[int, Kind] = {
    code: kind for kind, code in reversed(list(jsonrpc.CODES.items())) if kind is not errors.TooManyRequests
}
"""JSON-RPC's codes and A2A's, each for the first of its errors; a dialect overrides them with its own."""

STATUSES: Mapping[int, Kind] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    408: errors.RequestTimeout,
    409: errors.TaskNotCancelable,
    413: errors.PayloadTooLarge,
    415: errors.UnsupportedMediaType,
    422: errors.InvalidParams,
    429: errors.TooManyRequests,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.TaskTimeout,
}
"""The meaning of an HTTP status if the body says nothing better; 400 is an invalid request, any other is internal."""

_OF_THE_REQUEST = frozenset({401, 403, 405, 408, 413, 415, 429})
"""Statuses that say more than the code beside them, which JSON-RPC uses for everything."""

_NAMES: Mapping[str, Kind] = {kind.__name__: kind for kind in jsonrpc.CODES}
"""The values of Dragoman's `data.reason` in dialects that are close to 0.3."""

_NOBODY = frozenset({"missing_token", "api key not provided", "unauthorized: expected 'authorization: bearer <token>'"})
"""Texts that BeeOS, Evo AI and protoAgent send to a caller without credentials."""

_RETRY_S = 5

_REFERENCE = re.compile(r"\(reference ([^)]{1,100})\)")
"""The reference in an internal error of Dragoman, which points to its log."""


def read(
    body: bytes,
    status: int,
    codes: Mapping[int, Kind] = CODES,
    words: Mapping[str, Kind] = {},
    statuses: Mapping[int, Kind] = STATUSES,
) -> A2AError:
    """Read the `error` member of an answer (`status` 0), or the body of an HTTP answer with that status."""
    try:
        return decode_answer(body, lambda value: of(value, status, codes, words, statuses))
    except InvalidAgentResponse as unread:
        kind = statuses.get(status)
        return unread if kind is None else made(kind, "", {})


def of(
    value: object,
    status: int,
    codes: Mapping[int, Kind] = CODES,
    words: Mapping[str, Kind] = {},
    statuses: Mapping[int, Kind] = STATUSES,
) -> A2AError:
    """Read the error in decoded JSON.

    It accepts an error of JSON-RPC, with or without its envelope; `{"success": false, "error": …}` with a word or an
    object (BeeOS, Evo AI); `{"detail": …}` (FastAPI); a frame `{"type": "error", …}` (BeeOS).
    """
    given = _member(value)
    code, data = given.get("code"), given.get("data")
    known: Json = data if isinstance(data, dict) else given
    kind = _find_by_word(given, known, words)
    if kind is None and status in _OF_THE_REQUEST:
        kind = statuses.get(status)
    if kind is None and isinstance(code, int):
        kind = codes.get(code)
    if kind is None:
        kind = statuses.get(status)
    if kind not in (errors.AgentFailed, errors.TaskTimeout) and "retryAfterS" in known and "limit" in known:
        kind = errors.TooManyRequests
    if kind is None:
        text = _text(given) or UNTOLD
        return made(errors.InvalidRequest if status == 400 else errors.InternalError, text, known)
    error = made(kind, _text(given), known)
    if isinstance(error, errors.Unauthorized):
        error.missing = not _NOBODY.isdisjoint(_words(given, known))
    return error


def _member(value: object) -> Json:
    """Return the object that has the code or the word, and the text."""
    if isinstance(value, str):
        return {"message": value}
    if not isinstance(value, dict):
        return {}
    inner = value.get("error")
    if isinstance(inner, str):
        return {"message": inner, **{name: each for name, each in value.items() if name != "error"}, "word": inner}
    if not isinstance(inner, dict):
        return value
    details = inner.get("details")  # where Evo AI's community build puts the JSON-RPC error
    return details if isinstance(details, dict) and isinstance(details.get("code"), int) else inner


def _find_by_word(given: Json, data: Json, words: Mapping[str, Kind]) -> Kind | None:
    for word in _words(given, data):
        if word in words:
            return words[word]
    reason = data.get("reason")
    return _NAMES.get(reason) if isinstance(reason, str) else None


def _words(given: Json, data: Json) -> list[str]:
    """Return the texts that may be an error word, in lower case."""
    found = (given.get("code"), given.get("word"), data.get("code"), given.get("message"), given.get("detail"))
    return [each.lower() for each in found if isinstance(each, str)]


def _text(given: Json) -> str:
    """Return the error's text. FastAPI lists the faults of a body as `{"loc", "msg"}`."""
    text = text_in(given, "message", "detail")
    if text is None and isinstance(given.get("detail"), list):
        told = [each.get("msg") for each in given["detail"] if isinstance(each, dict)]
        text = "; ".join(each for each in told if isinstance(each, str))
    return (text or "")[:MAX_TEXT]


def made(kind: Kind, text: str, data: Json) -> A2AError:
    """Build an error of that kind, with the text that came, if any."""
    error = _MADE[kind](text, data) if kind in _MADE else kind(text or UNTOLD)
    if text and kind is not errors.AgentFailed:
        error.message, error.args = text, (text,)
    return error


UNTOLD = "the agent refused, and did not say why"
"""The text of an error that came without one."""


def untold(error: A2AError) -> bool:
    """Whether the error is unexplained: it came without a word, a code, a status or a text."""
    return isinstance(error, errors.InternalError | errors.InvalidRequest) and error.message == UNTOLD


def _texts(data: Json, name: str) -> tuple[str, ...]:
    """Read a list, or a text with commas, as in the metadata of an ErrorInfo."""
    return texts_in(data, name) or tuple(each for each in (text_in(data, name) or "").split(",") if each)


def _reference(text: str) -> str:
    found = _REFERENCE.search(text)
    return found[1] if found else ""


def _task(data: Json) -> str:
    return (text_in(data, "taskId", "task_id") or "")[:MAX_TEXT]


def _details(text: str, data: Json) -> str:
    return (text_in(data, "details", "error") or text)[:MAX_TEXT]


def _violations(text: str, data: Json) -> A2AError:
    found = data.get("fieldViolations")
    listed = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    told = [(text_in(each, "field") or "", text_in(each, "description") or "") for each in listed]
    first, *more = told or [("", text or _details("", data) or "was refused")]
    return errors.InvalidParams(*first, *more)


def _whole(data: Json, name: str, otherwise: int) -> int:
    value = text_in(data, name) or ""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else otherwise


_MADE: Mapping[Kind, Callable[[str, Json], A2AError]] = {
    errors.MethodNotFound: lambda text, data: errors.MethodNotFound(text_in(data, "method") or ""),
    errors.InvalidParams: _violations,
    errors.Conflict: _violations,  # of the admin API alone, which this client does not call
    errors.VersionConflict: _violations,
    errors.InternalError: lambda text, data: errors.InternalError(_reference(text)),
    errors.TaskNotFound: lambda text, data: errors.TaskNotFound(_task(data)),
    errors.TaskNotCancelable: lambda text, data: errors.TaskNotCancelable(_task(data), text_in(data, "state") or ""),
    errors.PushNotificationNotSupported: lambda text, data: errors.PushNotificationNotSupported(),
    errors.ExtensionSupportRequired: lambda text, data: errors.ExtensionSupportRequired(text_in(data, "uri") or ""),
    errors.VersionNotSupported: lambda text, data: errors.VersionNotSupported(
        text_in(data, "version") or "", _texts(data, "supportedVersions")
    ),
    errors.AgentNotFound: lambda text, data: errors.AgentNotFound(text_in(data, "agent") or ""),
    errors.AgentOffline: lambda text, data: errors.AgentOffline(text_in(data, "agent") or ""),
    errors.AgentFailed: lambda text, data: errors.AgentFailed(_task(data), _details(text, data)),
    errors.TaskTimeout: lambda text, data: errors.TaskTimeout(_task(data), 0),
    errors.LeaseLost: lambda text, data: errors.LeaseLost(),
    errors.MethodNotAllowed: lambda text, data: errors.MethodNotAllowed(texts_in(data, "allowed")),
    errors.UnsupportedMediaType: lambda text, data: errors.UnsupportedMediaType(""),
    errors.PayloadTooLarge: lambda text, data: errors.PayloadTooLarge(0),
    errors.Unavailable: lambda text, data: errors.Unavailable(text or UNTOLD, _whole(data, "retryAfterS", _RETRY_S)),
    errors.TooManyRequests: lambda text, data: errors.TooManyRequests(
        text_in(data, "limit") or "its own limit", text or "too many requests", _whole(data, "retryAfterS", _RETRY_S)
    ),
}
"""Constructors of errors that need more than a text. The error's own text is used if none came."""
