"""The client's side of KAOS's dialect, as in its RemoteAgent and its command line: three methods, parts tagged `type`,
the session beside the message.

Invariant: a plain call is that of KAOS's text; features of newer servers beyond that text are not used. The last agent
message in a task's history is its answer: KAOS need not give it anywhere else.
"""

from msgspec.structs import replace

from dragoman.dialects import vendors
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.client import answers, objects
from dragoman.dialects.client.encode import no_earlier
from dragoman.dialects.client.scalars import Json
from dragoman.dialects.kaos.encode import TAG
from dragoman.dialects.vendors import (
    LACKS,
    Methods,
    VendorMethod,
    encode_calls,
    history_params,
    lacks,
    message,
    read_by,
)
from dragoman.model.message import Artifact, Part, Role
from dragoman.model.operations import (
    CancelTask,
    GetExtendedCard,
    GetTask,
    Operation,
    SendMessage,
)
from dragoman.model.task import Task, TaskState

SYSTEM = "KAOS"

OUTPUT = "output"
"""The id of the artifact made from `output`, if a task has no artifact."""


def _send(sent: SendMessage) -> Json:
    """Encode a send. The task's metadata is that of its message; `autonomous` is KAOS's word for not waiting."""
    no_earlier(sent, SYSTEM)
    if sent.push_config is not None:
        raise lacks(SYSTEM, "webhooks", "send without, and ask with GetTask")
    configuration = vendors.configuration(sent)
    if configuration.pop("blocking", None) is False:
        configuration["mode"] = "autonomous"
    metadata = {**vendors.metadata(sent), **(sent.message.metadata or {})}
    return {
        "message": message(sent.message, TAG, contextId=None, metadata=metadata),
        "contextId": sent.message.context_id,
        "configuration": configuration,
    }


def _answer(operation: Operation, value: object) -> Answer:
    answer = answers.answer(operation, value)
    if not isinstance(answer, Task) or not isinstance(value, dict) or answer.artifacts:
        return answer
    output = value.get("output")
    return _with_output(answer, output if isinstance(output, str) else None)


def _with_output(task: Task, output: str | None) -> Task:
    """Return the task with its `output` as an artifact, unless its history ends with the same text."""
    last = task.history[-1] if task.history else None
    if not output and (output is None or last is not None or task.status.state is not TaskState.COMPLETED):
        return task  # an empty output counts only if the task has no other answer
    if output is None or (last is not None and last.role is Role.AGENT and last.text == output):
        return task
    return replace(task, artifacts=(Artifact(artifact_id=OUTPUT, parts=(Part(text=output),)),))


METHODS: Methods = {
    SendMessage: VendorMethod("SendMessage", _send),
    GetTask: VendorMethod("GetTask", history_params),
    CancelTask: VendorMethod("CancelTask", lambda operation: {"id": operation.id}),
}

TONGUE = Tongue(
    name="kaos",
    rpc=encode_calls(
        SYSTEM, METHODS, {**LACKS, GetExtendedCard: ("extended card", "its card is at /.well-known/agent.json")}
    ),
    **read_by(_answer, lambda value: (objects.update(value),)),  # KAOS sends no frames; its error codes are A2A's
    streams=False,
    subscribes=False,
    pushes=False,
    lists=False,
    chats=True,
    slash=True,
)
