"""One answer of a model, from the request to its last token, over as many attempts as needed.

Invariant: an answer is emitted as one artifact. An answer that begins again replaces what the previous attempt emitted.
When the run is canceled, the connection is closed at once, and the model stops.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from dragoman.agents.breaker import State
from dragoman.agents.model import failures
from dragoman.agents.model.completion import ApiFault, Called, CompletionParser, Faulted, NoCompletion, fault_in
from dragoman.agents.model.endpoint import ModelEndpoint
from dragoman.agents.model.failures import Trouble
from dragoman.agents.text_windows import Windows
from dragoman.config import Model
from dragoman.engine.api import Ended, Run
from dragoman.model.message import Artifact, Part
from dragoman.model.task import Usage
from dragoman.net.egress import Flow
from dragoman.net.errors import EgressError

log = logging.getLogger("dragoman.models")

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0
"""The wait between two attempts when the endpoint names none: the first, and the longest. Waits double."""

LINGER_S = 0.1
"""How long to wait for the end of the stream once the answer is whole, so that its connection can be reused."""


class ModelAnswer(Struct, frozen=True):
    """The model's answer. `text` has already been emitted, unless it was kept. `finish` is why the model stopped."""

    text: str
    calls: tuple[Called, ...] = ()
    finish: str = ""
    refusal: str = ""
    usage: Usage | None = None


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often a model is called again, and how long all waits in between may take together.

    `pause` and `chance` supply time and randomness, which tests replace.
    """

    retries: int = 2
    wait_max_s: float = 5.0
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    now_s: Callable[[], float] = time.time

    def wait_s(self, attempt: int) -> float:
        """Seconds to wait after this many attempts: a random share of the backoff, at least half."""
        whole: float = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempt, 10))
        return min(self.wait_max_s, whole) * (0.5 + 0.5 * self.chance())


class AnswerCalls:
    """Calls the model of the table `model` at `endpoint` for the agent `name`, and emits its answer."""

    def __init__(self, name: str, model: Model, endpoint: ModelEndpoint, retry: RetryPolicy) -> None:
        self._name = name
        self._model = model
        self._endpoint = endpoint
        self._windows = Windows(model.coalesce_ms / 1000)
        self._trying = retry

    async def answer(self, run: Run, body: bytes, artifact_id: str, *, first: bool = True) -> ModelAnswer:
        """Return the model's answer, emitted as that artifact; one with a schema is only returned.

        `first`: nothing of the task has been done before. Raises Ended. The breaker is told the outcome of the last
        attempt only: it counts answers, not attempts. No attempt is made once others have opened it.
        """
        retry = self._trying
        artifact = AnswerArtifact(run, artifact_id, keeps=self._model.schema is not None)
        breaker = self._endpoint.breaker
        attempt, waited_s = 0, 0.0
        tries_for_all = breaker.state is not State.CLOSED
        if not breaker.admit():
            raise failures.unreachable(self._name, breaker.wait_s if first else None)
        while True:
            artifact.restart()
            try:
                answer = await self._once(run, body, artifact)
            except Trouble as trouble:
                wait_s = retry.wait_s(attempt) if trouble.after_s is None else trouble.after_s
                waited_s += wait_s
                held_back = breaker.state is not State.CLOSED and not tries_for_all
                if not trouble.again or attempt >= retry.retries or waited_s > retry.wait_max_s or held_back:
                    endpoint = self._endpoint
                    (endpoint.record_failure if trouble.down else endpoint.record_success)(self._name)
                    raise self._task_end(trouble, untouched=first and not artifact.begun) from trouble
            except BaseException:
                breaker.record_unknown()
                raise
            else:
                self._endpoint.record_success(self._name)
                await artifact.finish()
                return answer
            attempt += 1
            log.info("model %s: task %s: attempt %d in %.1f s", self._name, run.head.id, attempt + 1, wait_s)
            try:
                await retry.pause(wait_s)
            except BaseException:
                breaker.record_unknown()
                raise

    def _task_end(self, trouble: Trouble, *, untouched: bool) -> Ended:
        """How the task ends after the last attempt. `untouched`: nothing of it has been done."""
        ended = trouble.ended
        if ended.retry_after_s is None or not untouched:
            return Ended(ended.state, ended.parts, ended.reason)
        again_s = max(ended.retry_after_s, self._endpoint.breaker.wait_s)
        return Ended(ended.state, ended.parts, ended.reason, again_s)

    async def _once(self, run: Run, body: bytes, artifact: "AnswerArtifact") -> ModelAnswer:
        """Make one call. Raises Trouble."""
        try:
            async with self._endpoint.request_completion(body, run.traceparent) as flow:
                if not flow.ok:
                    raise self._trouble_of(run, fault_in(await flow.body(), flow.status), flow)
                run.working()
                return await self._read(run, flow, artifact)
        except EgressError as error:
            log.warning("model %s: task %s: %s", self._name, run.head.id, error)
            raise failures.lost(self._name, error) from error

    async def _read(self, run: Run, flow: Flow, artifact: "AnswerArtifact") -> ModelAnswer:
        reading = CompletionParser(self._model.model)
        windows = self._windows

        def begin(window: "asyncio.Future[None]") -> None:
            windows.begin(window, run)

        try:
            while not reading.whole:
                if (waiting := flow.gathering(begin)) is not None:
                    await waiting
                try:
                    piece = flow.gathered()
                except EgressError:
                    if not reading.finish:
                        raise
                    break  # the answer is there: only the usage or the end of the stream is missing
                reading.feed(piece) if piece else reading.end()
                if reading.pending:
                    await artifact.emit(reading.take_text())
                if not piece:
                    break
            if reading.whole:
                await _linger(flow)
            elif not reading.finish:
                raise failures.cut(self._name)
        except NoCompletion as error:
            said = failures.redact(str(error), self._endpoint.key)
            log.warning("model %s: task %s: %s; %s", self._name, run.head.id, said, self._endpoint.hint)
            raise failures.unreadable(self._name) from error
        except Faulted as error:
            raise self._trouble_of(run, error.fault, flow) from error
        return ModelAnswer(artifact.text, tuple(reading.calls), reading.finish, reading.refusal, reading.usage)

    def _trouble_of(self, run: Run, fault: ApiFault, flow: Flow) -> Trouble:
        said = failures.redact(fault.message, self._endpoint.key)
        log.warning("model %s: task %s: %d %s %s", self._name, run.head.id, fault.status, fault.code, said)
        return failures.classify_fault(
            self._name,
            fault,
            flow.headers,
            self._trying.now_s(),
            on_refusal=self._model.on_refusal,
            key=self._endpoint.key,
        )


class AnswerArtifact:
    """The artifact that an answer becomes. `keeps`: nothing is emitted."""

    __slots__ = ("_fresh", "_id", "_run", "_texts", "begun", "keeps")

    def __init__(self, run: Run, artifact_id: str, *, keeps: bool) -> None:
        self.keeps = keeps
        self._run = run
        self._id = artifact_id
        self._texts: list[str] = []
        self._fresh = True
        self.begun = False
        """Whether anything was emitted, even of an attempt that broke off."""

    @property
    def text(self) -> str:
        """The whole answer so far."""
        return "".join(self._texts)

    def restart(self) -> None:
        """Begin an answer. It replaces what an earlier attempt emitted."""
        self._texts.clear()
        self._fresh = True

    async def emit(self, text: str) -> None:
        """Add a piece of the answer; an empty one adds nothing."""
        if not text:
            return
        self._texts.append(text)
        if self.keeps:
            return
        append, self._fresh, self.begun = not self._fresh, False, True
        await self._run.artifact(_artifact(self._id, text), append=append, last_chunk=False)

    async def finish(self) -> None:
        """Finish the answer. An empty one clears what an earlier attempt emitted, even in a run that died."""
        if not self._fresh or self.keeps:
            return
        if self.begun or (
            self._run.epoch > 1 and any(known.artifact_id == self._id for known in self._run.record.artifacts)
        ):
            await self._run.artifact(_artifact(self._id, ""), append=False, last_chunk=True)


def _artifact(artifact_id: str, text: str) -> Artifact:
    return Artifact(artifact_id=artifact_id, parts=(Part(text=text),))


async def _linger(flow: Flow) -> None:
    """Wait a moment for the end of a stream whose last token has been read."""

    def begin(window: "asyncio.Future[None]") -> None:
        """Ignore further content: only the end of the stream matters."""
        window.set_result(None)

    try:
        async with asyncio.timeout(LINGER_S):
            if (waiting := flow.gathering(begin)) is not None:
                await waiting
    except TimeoutError:
        return
