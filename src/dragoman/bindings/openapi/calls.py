"""The calls that the server makes to webhooks, as `webhooks` of the document: of A2A 1.0 and of 0.3.

Invariant: the headers are those of `push/caller.py`.
"""

from typing import Any

from dragoman.bindings.openapi import shapes
from dragoman.bindings.openapi.a2a import A2A_JSON
from dragoman.bindings.openapi.document import JSON, AnswerForms, HeaderForms, OperationForms
from dragoman.bindings.openapi.legacy import TaggedTask
from dragoman.bindings.openapi.refusals import RETRY_AFTER
from dragoman.dialects.push import TOKEN

CALLED = "Webhook calls"

TAGS = {
    CALLED: (
        "What this server sends to a webhook. Any 2xx within ten seconds takes the call; else it is made again, up to "
        "eight times in all. `Authorization` has the credentials that the webhook was registered with."
    )
}


def _header(description: str, *, always: bool = False, **schema: Any) -> dict[str, Any]:
    return {"required": always, "description": description, "schema": {"type": "string", **schema}}


SENT: HeaderForms = {
    "webhook-id": _header("The id of the call, the same whenever it is repeated.", always=True),
    "webhook-timestamp": _header("When this attempt was made, in seconds since 1970.", always=True, pattern="^[0-9]+$"),
    "webhook-signature": _header(
        "With a `secret`: `v1,` and the base64 HMAC-SHA256 of the id, the timestamp and the body, with dots between "
        "them (Standard Webhooks).",
        pattern="^v1,[A-Za-z0-9+/]{43}=$",
    ),
    "X-Dragoman-Seq": _header(
        "The place of the call among those about the task: the number of the event, or `7.1`, `7.2` … before `7`.",
        always=True,
        pattern=r"^[0-9]+(\.[0-9]+)?$",
    ),
    TOKEN: _header("The `token` that the webhook was registered with."),
    "X-Dragoman-JWT": _header("With `push_jwt`: a JWT about the call, if `Authorization` is taken."),
    "traceparent": _header("The trace of the task."),
}

TAKEN = {
    "2XX": AnswerForms(description="The call was taken. The body does not matter."),
    "410": AnswerForms(description="The webhook is gone: it gets no further calls."),
    "429": AnswerForms(description="Not now.", headers=RETRY_AFTER),
    "503": AnswerForms(description="Not now.", headers=RETRY_AFTER),
    "default": AnswerForms(description="The call was not taken."),
}

CALLS: tuple[OperationForms, ...] = (
    OperationForms(
        name="taskChanged",
        method="POST",
        path="",
        summary="A task has changed, or an artifact is whole",
        tag=CALLED,
        headers=SENT,
        body=shapes.StreamResponse,
        body_types=(A2A_JSON,),
        answers=TAKEN,
    ),
    OperationForms(
        name="taskChangedV03",
        method="POST",
        path="",
        summary="The same for a webhook that was registered in A2A 0.3: the task as it stands",
        tag=CALLED,
        headers=SENT,
        body=TaggedTask,
        body_types=(JSON,),
        answers=TAKEN,
    ),
)
"""The calls to webhooks."""
