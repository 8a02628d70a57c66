"""What a SendMessage was answered with, in any dialect, as text.

Understood alike: a flat task (KAOS, BeeOS, Evo AI, protoAgent, 0.3), `{"task": …}` and `{"message": …}` (1.0), a flat
message (0.3); states in either spelling; parts tagged `type`, `kind`, or not at all.

Invariant: pure. Raises InvalidAgentResponse and nothing else, whatever the JSON.
"""

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.model.errors import InvalidAgentResponse

EXPECTED = 'expected a task (`id`, `status`), {"task": …} or a message (`role`, `parts`)'


class RemoteAnswer(Struct, frozen=True, kw_only=True):
    """An answer. `state` is in lower case without prefix (`completed`, `input-required`), empty for a bare message.

    `text` comes from the artifacts, else `output`, else the last agent message of the history, else the status, unless
    that is a word of the server's own ("Done"); None if there is none anywhere. `status` is the text of the status.
    """

    text: str | None
    state: str = ""
    status: str = ""
    task_id: str = ""
    context_id: str = ""


def read_answer(result: object) -> RemoteAnswer:
    """The answer in the `result` of a SendMessage. Raises InvalidAgentResponse if it is neither task nor message."""
    if isinstance(result, dict):
        for wrapper in ("task", "message"):
            if isinstance(result.get(wrapper), dict) and "status" not in result:
                result = result[wrapper]
                break
    if not isinstance(result, dict):
        raise InvalidAgentResponse(f"{EXPECTED}, got {type(result).__name__}")
    status = result.get("status")
    if isinstance(status, dict):
        return _of_task(result, status)
    if isinstance(result.get("parts"), list):
        text = _text_of(result["parts"], "\n")
        return RemoteAnswer(text=text, task_id=_string(result, "taskId"), context_id=_string(result, "contextId"))
    raise InvalidAgentResponse(
        f"{EXPECTED}, got an object with {', '.join(sorted(map(str, result))[:10]) or 'nothing'}"
    )


def _of_task(task: dict[str, Any], status: dict[str, Any]) -> RemoteAnswer:
    said, state = _said(status.get("message")), _state(status.get("state"))
    last_resort = said if isinstance(status.get("message"), dict) or state != "completed" else None
    output = task.get("output") if isinstance(task.get("output"), str) else None
    return RemoteAnswer(
        text=_first(_artifacts(task.get("artifacts")), output, _last_of(task.get("history")), last_resort),
        state=state,
        status=said or "",
        task_id=_string(task, "id"),
        context_id=_string(task, "contextId") or _string(task, "sessionId"),
    )


def _first(*texts: str | None) -> str | None:
    """The first that says something; the empty text if one of them is that; else None."""
    said = [text for text in texts if text is not None]
    return next(filter(None, said), said[0] if said else None)


def _artifacts(artifacts: object) -> str | None:
    """Within an artifact parts follow each other as they are: servers append chunks of a text as parts."""
    if not isinstance(artifacts, list):
        return None
    texts = [_text_of(artifact.get("parts"), "") for artifact in artifacts if isinstance(artifact, dict)]
    return "\n".join(filter(None, texts)) or None


def _last_of(history: object) -> str | None:
    if not isinstance(history, list):
        return None
    spoken = (
        _said(message)
        for message in reversed(history)
        if isinstance(message, dict) and message.get("role") in ("agent", "ROLE_AGENT", "assistant")
    )
    return next((text for text in spoken if text), None)


def _said(message: object) -> str | None:
    """The text of a message, or of a status whose message is a plain string."""
    if isinstance(message, dict):
        return _text_of(message.get("parts"), "\n")
    return message if isinstance(message, str) else None


def _text_of(parts: object, between: str) -> str | None:
    """The text parts; if there are none, the data parts as JSON."""
    if not isinstance(parts, list):
        return None
    held = [part for part in parts if isinstance(part, dict)]
    texts = [part["text"] for part in held if isinstance(part.get("text"), str)]
    if texts:
        return between.join(texts)
    data = [part["data"] for part in held if part.get("data") is not None]
    try:
        return "\n".join(msgspec.json.encode(item).decode() for item in data) or None
    except RecursionError:
        raise InvalidAgentResponse("expected data that is not nested so deeply") from None


def _state(state: object) -> str:
    if not isinstance(state, str):
        return ""
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def _string(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
