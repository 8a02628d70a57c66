"""The table of workers: what each of their calls does in each situation of the task and its lease, over HTTP and BeeOS.

Invariant: a row is made by a process of its own. Answers are shown as they go out, but for ids, tokens and times.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.bindings.http import HttpRequest
from dragoman.bindings.limits import make_limits
from dragoman.bindings.routes import NOTHING, Route
from dragoman.bindings.workers import WorkerBinding
from dragoman.dialects.beeos.decode import decode as decode_beeos
from dragoman.dialects.beeos.errors import CODES
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError
from dragoman.model.operations import CancelTask
from dragoman.model.principal import AccessRole, Principal
from tests.engine.house import call
from tests.law.stage import Actor, Stage, after, determined, name_of, sends, told, waits

LEASE_S = 30.0
SEEN_S = 60.0

LIMITS = make_limits(1 << 20, 64, 64)


def far() -> WorkerAgent:
    profile = Profile(id="agent", name="agent", description="Elsewhere", version="1", skills=())
    return WorkerAgent(profile, queues=True, lease_s=LEASE_S, seen_s=SEEN_S)


class WorkerStage(Stage):
    """A task whose work is done by workers, and their calls. `leases` are the tokens given out, oldest first."""

    def __init__(self) -> None:
        self.leases: list[str] = []
        super().__init__(lambda: (far(), Actor("other")))

    def act(self, action: str, body: Mapping[str, Any]) -> str:
        """A call of the worker API: its status and body."""
        answer = self.do_soon(self._post(action, dict(body)))
        if action == "lease" and answer.startswith("200"):
            self.leases.append(json.loads(answer[4:])["lease"])
        return answer

    async def _post(self, action: str, body: dict[str, Any]) -> str:
        async def receive() -> dict[str, Any]:
            raise AssertionError("the body is here")

        headers = {b"content-type": b"application/json"}
        route = Route("workers", NOTHING, agent="agent", ids={"action": action})
        request = HttpRequest(
            "POST",
            headers,
            list(headers.items()),
            route=route,
            principal=Principal("worker", AccessRole.AGENT),
            path=f"/workers/agent/{action}",
            receive=receive,
            body=json.dumps(body).encode(),
        )
        workers = WorkerBinding(self.engine.operations, {"agent": self.agents["agent"]}, LIMITS)
        try:
            response = await workers.answer(request)
        except A2AError as error:
            response = workers.refuse(request, error)
        return f"{response.status} {response.body.decode()}".rstrip()  # type: ignore[union-attr]

    def report(self, method: str, params: Mapping[str, Any]) -> str:
        """A call of BeeOS's agent-side methods: the state it answers with, or its error."""
        return self.do_soon(self._report(method, dict(params)))

    async def _report(self, method: str, params: dict[str, Any]) -> str:
        try:
            operation = decode_beeos(method, json.dumps(params).encode())
            record = await self.engine.operations.call(call(operation, dialect="beeos"))
        except A2AError as error:
            return f"{CODES.get(type(error), '')} {told(error)}".strip()
        return f"task {name_of(record.state)}"  # type: ignore[union-attr]

    def do_soon(self, work: Any) -> str:
        """Do something that may wait longer than everything takes to settle."""
        task = self.spawn(work)
        self.settle()
        return str(task.result()) if task.done() else "waits"

    # -- situations ----------------------------------------------------------------------------------------------------

    def take(self, *, replays: bool = False) -> str:
        """A worker takes the task; its token."""
        taken = self.act("lease", {"worker": f"w{len(self.leases) + 1}", "replays": replays})
        assert taken.startswith("200"), taken
        return self.leases[-1]

    def end_delegated(self) -> None:
        """The agent that was delegated to returns."""
        self.agents["other"].speaker.order(lambda run: asyncio.sleep(0), ends=True)
        self.settle()


def queued() -> WorkerStage:
    """A task that was just made."""
    stage = WorkerStage()
    stage.send()
    return stage


def acts(action: str, answer: str = "200", **body: Any) -> Callable[[WorkerStage], None]:
    """The worker with the newest lease makes a call, which is answered with this status."""

    def act(stage: WorkerStage) -> None:
        assert stage.act(action, {"lease": stage.leases[-1], **body}).startswith(answer)

    return act


def cancel(stage: WorkerStage) -> None:
    """The caller cancels the task."""
    stage.ask(CancelTask(id=stage.task_id))


SOME = {"artifactId": "a", "parts": [{"text": "some"}]}

LEASED = after(queued, WorkerStage.take)

REPORTED = after(LEASED, acts("update", message="hm", number=1), acts("artifact", artifact=SOME, append=True, number=2))

ASKED = after(REPORTED, acts("ask", message="what?", question=1))

ANSWERED = after(ASKED, sends("this"))

EXPIRED = after(REPORTED, waits(LEASE_S + 1))

ASKED_AND_EXPIRED = after(ASKED, waits(LEASE_S + 1))

ANSWERED_LATE = after(ASKED_AND_EXPIRED, sends("this"))

DELEGATING = after(REPORTED, acts("delegate", agent="other", message="do it", delegation=1))

STEPPING = after(REPORTED, acts("step", number=1, name="pay", at_most_once=True))

STEPPED = after(STEPPING, acts("step-result", number=1, name="pay", result=12))

ASLEEP = after(REPORTED, acts("sleep", number=1, seconds=60))

RESTARTED = after(REPORTED, WorkerStage.crash)

SITUATIONS: dict[str, Callable[[], WorkerStage]] = {
    "queued": queued,
    "leased": LEASED,
    "leased, word 1 said, chunk 2 given": REPORTED,
    "question 1 is open": ASKED,
    "question 1 is answered": ANSWERED,
    "question 1 is answered, and the answer heard": after(ANSWERED, acts("heartbeat")),
    "the caller has sent a message": after(REPORTED, sends("and this")),
    "given back": after(REPORTED, acts("release", "204")),
    "the lease has run out": EXPIRED,
    "leased again": after(EXPIRED, WorkerStage.take),
    "question 1 is open, and the lease has run out": ASKED_AND_EXPIRED,
    "question 1 is answered, and the lease had run out": ANSWERED_LATE,
    "leased again after the answer": after(ANSWERED_LATE, WorkerStage.take),
    "leased again after the answer by one that replays": after(ANSWERED_LATE, lambda stage: stage.take(replays=True)),
    "delegation 1 is under way": DELEGATING,
    "delegation 1 is over": after(DELEGATING, WorkerStage.end_delegated),
    "canceled": after(REPORTED, cancel),
    "completed": after(REPORTED, acts("complete")),
    "step 1 is begun": STEPPING,
    "step 1 is recorded": STEPPED,
    "step 1 is begun, and leased again": after(STEPPING, waits(LEASE_S + 1), WorkerStage.take),
    "step 1 is recorded, and leased again": after(STEPPED, waits(LEASE_S + 1), WorkerStage.take),
    "step 1 is recorded, and leased again by one that replays": after(
        STEPPED, waits(LEASE_S + 1), lambda stage: stage.take(replays=True)
    ),
    "asleep": ASLEEP,
    "restarted": RESTARTED,
    "restarted, and leased again": after(RESTARTED, WorkerStage.take),
}

CHUNK = {"artifactId": "a", "parts": [{"text": "more"}]}

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "heartbeat": ("heartbeat", {}),
    "heartbeat, 1 answer known": ("heartbeat", {"answers": 1}),
    "update": ("update", {"message": "hm"}),
    "update with other words": ("update", {"message": "oh"}),
    "update of nothing": ("update", {}),
    "update of tokens": ("update", {"usage": {"input": 1, "output": 2}}),
    "update 1": ("update", {"message": "hm", "number": 1}),
    "update 3": ("update", {"message": "hm", "number": 3}),
    "update, progress": ("update", {"progress": {"current": 1, "total": 2}}),
    "update, metadata": ("update", {"metadata": {"k": 1}}),
    "update input-required": ("update", {"state": "input-required", "message": "what?"}),
    "update input-required without words": ("update", {"state": "input-required"}),
    "update auth-required": ("update", {"state": "auth-required", "message": "what?"}),
    "update completed": ("update", {"state": "completed", "message": "so"}),
    "update failed": ("update", {"state": "failed", "message": "no"}),
    "update canceled": ("update", {"state": "canceled"}),
    "update submitted": ("update", {"state": "submitted"}),
    "artifact": ("artifact", {"artifact": CHUNK}),
    "artifact without id": ("artifact", {"artifact": {"parts": [{"text": "more"}]}}),
    "chunk": ("artifact", {"artifact": CHUNK, "append": True}),
    "chunk 2": ("artifact", {"artifact": CHUNK, "append": True, "number": 2}),
    "chunk 3": ("artifact", {"artifact": CHUNK, "append": True, "number": 3}),
    "last chunk": ("artifact", {"artifact": CHUNK, "append": True, "last_chunk": True}),
    "ask": ("ask", {"message": "what?"}),
    "ask 1": ("ask", {"message": "what?", "question": 1}),
    "ask 1 with other words": ("ask", {"message": "why?", "question": 1}),
    "ask 2": ("ask", {"message": "why?", "question": 2}),
    "ask 5": ("ask", {"message": "why?", "question": 5}),
    "ask with a note": ("ask", {"message": "what?", "question": 1, "note": {"place": "Rome"}}),
    "delegate": ("delegate", {"agent": "other", "message": "do it"}),
    "delegate 1": ("delegate", {"agent": "other", "message": "do it", "delegation": 1}),
    "delegate 1 to nobody": ("delegate", {"agent": "nobody", "message": "do it", "delegation": 1}),
    "delegate 2": ("delegate", {"agent": "other", "message": "do it", "delegation": 2}),
    "delegate 5": ("delegate", {"agent": "other", "message": "do it", "delegation": 5}),
    "complete": ("complete", {}),
    "complete with an artifact": ("complete", {"artifacts": [CHUNK], "usage": {"input": 1, "output": 2}}),
    "fail": ("fail", {"message": "no"}),
    "release": ("release", {}),
    "history": ("history", {}),
    "step 1": ("step", {"number": 1, "name": "pay"}),
    "step 1 with another name": ("step", {"number": 1, "name": "ship"}),
    "step 1 at most once": ("step", {"number": 1, "name": "pay", "at_most_once": True}),
    "step 1 at most once, decided by the worker": (
        "step",
        {"number": 1, "name": "pay", "at_most_once": True, "uncertain": 0},
    ),
    "step-result 1": ("step-result", {"number": 1, "name": "pay", "result": 12}),
    "sleep 1": ("sleep", {"number": 1, "seconds": 60}),
    "sleep 1, kept": ("sleep", {"number": 1, "seconds": 60, "keep": True}),
    "step-result 2": ("step-result", {"number": 2, "name": "ship", "failure": {"type": "Lost", "text": "no"}}),
}

REPORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "CompleteTask": ("CompleteTask", {"artifacts": [CHUNK]}),
    "UpdateStatus working": ("UpdateStatus", {"status": {"state": "working"}}),
    "UpdateStatus working, words": (
        "UpdateStatus",
        {"status": {"state": "working", "message": {"role": "agent", "parts": [{"kind": "text", "text": "hm"}]}}},
    ),
    "UpdateStatus progress": (
        "UpdateStatus",
        {"status": {"state": "working"}, "progress": {"current": 1, "total": 2, "message": "so far"}},
    ),
    "UpdateStatus input-required": ("UpdateStatus", {"status": {"state": "input-required"}}),
    "UpdateStatus completed": ("UpdateStatus", {"status": {"state": "completed"}}),
    "UpdateStatus failed": ("UpdateStatus", {"status": {"state": "failed"}}),
}


def rows(situation: str) -> Iterator[dict[str, Any]]:
    """The rows of a situation: each call with each lease that there was, and each report with these and without."""
    with determined():
        stage = SITUATIONS[situation]()
        leases = len(stage.leases)
        stage.close()
    yield _row(situation, "take", lambda stage: stage.act("lease", {"worker": "w9"}))
    yield _row(situation, "take, replays", lambda stage: stage.act("lease", {"worker": "w9", "replays": True}))
    for number in range(leases or 1):
        for name, (action, body) in CALLS.items():

            def act(stage: WorkerStage) -> str:
                return stage.act(action, {"lease": token(stage, number), **body})  # noqa: B023

            yield _row(situation, f"{name}, lease {number + 1 if leases else 'unknown'}", act)
    for number in range(-1, leases):
        for name, (method, params) in REPORTS.items():

            def report(stage: WorkerStage) -> str:
                lease = {} if number < 0 else {"lease": token(stage, number)}  # noqa: B023
                return stage.report(method, {"id": stage.task_id, **params, **lease})  # noqa: B023

            yield _row(situation, name if number < 0 else f"{name}, lease {number + 1}", report)


def token(stage: WorkerStage, number: int) -> str:
    """The token of a lease; one that nobody gave out if there is none."""
    return stage.leases[number] if stage.leases else "unknown"


def _row(situation: str, name: str, act: Callable[[WorkerStage], str]) -> dict[str, Any]:
    with determined():
        stage = SITUATIONS[situation]()
        before = stage.snapshot()
        answer = act(stage)
        row = {"word": name, "told": _plain(answer, stage), **stage.since(before)}
        if stage.agents["other"].speakers:
            row["delegated runs"] = len(stage.agents["other"].speakers)
        stage.close()
    return row


ID = re.compile(r"[0-9a-f]{8}-0000-7000-8000-000000000000")
TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")


def _plain(answer: str, stage: WorkerStage) -> str:
    """An answer without what differs from run to run."""
    for number, lease in enumerate(stage.leases, 1):
        answer = answer.replace(lease, f"<lease {number}>")
    answer = answer.replace(stage.task_id, "<task>")
    return TIME.sub("<time>", ID.sub("<id>", shorten(answer)))


def shorten(answer: str) -> str:
    """An answer with its error or its task in short; the bytes of these are tested elsewhere."""
    status, _, body = answer.partition(" ")
    try:
        decoded = json.loads(body)
    except ValueError:
        return answer
    if (error := decoded.get("error")) is not None:
        return f"{status} {error['details'][0]['reason']}: {error['message']}"
    if "lease" in decoded:
        note, artifacts = decoded.get("note"), len(decoded["task"].get("artifacts", ()))
        return f"{status} {decoded['lease']}, {artifacts} artifacts" + (f", note {json.dumps(note)}" if note else "")
    if "status" in decoded:
        return f"{status} task {decoded['status']['state'].removeprefix('TASK_STATE_').lower()}"
    return answer
