"""The rows of the admin API about agents elsewhere, which an operator names by URL.

Invariant: nothing that is given here is stored. `RemoteAgents` answers, and notes each exchange.
"""

from dragoman.admin.question import AnyQuestion, Question
from dragoman.bindings.remote.values import (
    CardRequest,
    Examination,
    ExaminationRequest,
    MessageCheck,
    MessageFaults,
    RemoteAgentFacts,
    RemoteAnswer,
    RemoteEnd,
    RemoteSendRequest,
    RemoteTaskRequest,
    RemoteUpdate,
)

CHECK_MESSAGE = Question(
    name="checkMessage",
    method="POST",
    path="/messages:check",
    summary="Name the faults of a SendMessageRequest of A2A 1.0 without sending it.",
    given=MessageCheck,
    answer=MessageFaults,
)
READ_CARD = Question(
    name="readRemoteCard",
    method="POST",
    path="/remote/card",
    summary="Fetch the card of an agent elsewhere, and list its endpoints.",
    given=CardRequest,
    answer=RemoteAgentFacts,
)
SEND_MESSAGE = Question(
    name="sendRemoteMessage",
    method="POST",
    path="/remote/send",
    summary="Send a message to an agent elsewhere, and wait until its task ends or asks.",
    given=RemoteSendRequest,
    answer=RemoteAnswer,
)
STREAM_MESSAGE: AnyQuestion = Question(
    name="streamRemoteMessage",
    method="POST",
    path="/remote/stream",
    summary="Send a message to an agent elsewhere, and follow its task.",
    given=RemoteSendRequest,
    events={"update": RemoteUpdate, "end": RemoteEnd},
)
READ_TASK = Question(
    name="readRemoteTask",
    method="POST",
    path="/remote/task",
    summary="Read a task of an agent elsewhere.",
    given=RemoteTaskRequest,
    answer=RemoteAnswer,
)
CANCEL_TASK = Question(
    name="cancelRemoteTask",
    method="POST",
    path="/remote/task:cancel",
    summary="Cancel a task of an agent elsewhere.",
    given=RemoteTaskRequest,
    answer=RemoteAnswer,
)
EXAMINE_AGENT: AnyQuestion = Question(
    name="examineRemoteAgent",
    method="POST",
    path="/remote/examine",
    summary="Examine an agent elsewhere as the doctor does; only with active it is sent messages.",
    given=ExaminationRequest,
    events={"findings": Examination, "end": Examination},
)

REMOTE_QUESTIONS: tuple[AnyQuestion, ...] = (
    *(CHECK_MESSAGE, READ_CARD, SEND_MESSAGE, STREAM_MESSAGE, READ_TASK, CANCEL_TASK, EXAMINE_AGENT),
)
