"""The routes of the admin API for agents elsewhere, which an operator names by URL.

Invariant: nothing that is given here is stored; the exchanges go through the rules of `bindings.remote`.
"""

from dragoman.bindings.admin.route import AdminRoute, Asked
from dragoman.bindings.remote import RemoteAgents
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
from dragoman.engine.admin.administration import Administration
from dragoman.model.errors import NotFound


def _remote(asked: Asked) -> RemoteAgents:
    if asked.remote is None:
        raise NotFound("no such path here: this server was started without its console (console = false)")
    return asked.remote


async def _check(admin: Administration, asked: Asked) -> MessageFaults:
    return _remote(asked).check(asked.given)


REMOTE_ROUTES: tuple[AdminRoute, ...] = (
    AdminRoute(
        name="checkMessage",
        method="POST",
        path="/messages:check",
        summary="Name the faults of a SendMessageRequest of A2A 1.0 without sending it.",
        given=MessageCheck,
        answer=MessageFaults,
        act=_check,
    ),
    AdminRoute(
        name="readRemoteCard",
        method="POST",
        path="/remote/card",
        summary="Fetch the card of an agent elsewhere, and list its endpoints.",
        given=CardRequest,
        answer=RemoteAgentFacts,
        act=lambda admin, asked: _remote(asked).read_card(asked.operator, asked.given),
    ),
    AdminRoute(
        name="sendRemoteMessage",
        method="POST",
        path="/remote/send",
        summary="Send a message to an agent elsewhere, and wait until its task ends or asks.",
        given=RemoteSendRequest,
        answer=RemoteAnswer,
        act=lambda admin, asked: _remote(asked).send(asked.operator, asked.given),
    ),
    AdminRoute(
        name="streamRemoteMessage",
        method="POST",
        path="/remote/stream",
        summary="Send a message to an agent elsewhere, and follow its task.",
        given=RemoteSendRequest,
        follow=lambda admin, asked: _remote(asked).stream(asked.operator, asked.given),
        events={"update": RemoteUpdate, "end": RemoteEnd},
    ),
    AdminRoute(
        name="readRemoteTask",
        method="POST",
        path="/remote/task",
        summary="Read a task of an agent elsewhere.",
        given=RemoteTaskRequest,
        answer=RemoteAnswer,
        act=lambda admin, asked: _remote(asked).get(asked.operator, asked.given),
    ),
    AdminRoute(
        name="cancelRemoteTask",
        method="POST",
        path="/remote/task:cancel",
        summary="Cancel a task of an agent elsewhere.",
        given=RemoteTaskRequest,
        answer=RemoteAnswer,
        act=lambda admin, asked: _remote(asked).cancel(asked.operator, asked.given),
    ),
    AdminRoute(
        name="examineRemoteAgent",
        method="POST",
        path="/remote/examine",
        summary="Examine an agent elsewhere as the doctor does; only with active it is sent messages.",
        given=ExaminationRequest,
        follow=lambda admin, asked: _remote(asked).examine(asked.operator, asked.given),
        events={"findings": Examination, "end": Examination},
    ),
)
