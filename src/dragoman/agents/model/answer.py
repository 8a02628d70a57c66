"""One answer of a model, from the request to its last token, over as many attempts as needed.

Invariant: an answer is emitted as one artifact. An answer that begins again replaces what the previous attempt emitted.
When the run is canceled, the connection is closed at once, and the model stops.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.masking import NO_MASKING
from dragoman.agents.model import failures
from dragoman.agents.model.completion import ApiFault, Called, CompletionParser, Faulted, NoCompletion, fault_in
from dragoman.agents.model.endpoint import NOTHING_PASSED
from dragoman.agents.model.failures import Trouble
from dragoman.agents.model.pool import Attempts, ModelPool, PoolEndpoint, RetryPolicy
from dragoman.agents.model.request import ModelRequest
from dragoman.agents.passed_headers import headers_to_pass
from dragoman.agents.text_windows import Windows
from dragoman.client.errors import NoToken
from dragoman.engine.api import Ended, Run
from dragoman.engine.upstream_notes import WHY_CHARS, UpstreamAttempt, read_upstream_notes, write_attempts
from dragoman.model.ids import timestamp
from dragoman.model.message import Artifact, Part
from dragoman.model.task import Usage
from dragoman.net.egress import Flow
from dragoman.net.errors import EgressError
from dragoman.telemetry.genai import ChatReply, present_chats

log = logging.getLogger("dragoman.models")

LINGER_S = 0.1
"""How long to wait for the end of the stream once the answer is whole, so that its connection can be reused."""


TAIL = 2048
"""Characters of an answer's end that are remembered, because a secret may span several pieces."""


class ModelAnswer(Struct, frozen=True):
    """The model's answer. `text` has already been emitted, unless it was kept. `finish` is why the model stopped."""

    text: str
    calls: tuple[Called, ...] = ()
    finish: str = ""
    refusal: str = ""
    usage: Usage | None = None


class AnswerCalls:
    """Calls the endpoints of `pool` for the agent `name`, and emits the answer of the one that gives it."""

    def __init__(self, name: str, pool: ModelPool, retry: RetryPolicy) -> None:
        self._name = name
        self._pool = pool
        self._windows = Windows(pool.first.model.coalesce_ms / 1000)
        self._trying = retry

    async def answer(
        self, run: Run, write_body: Callable[[ModelRequest], bytes], artifact_id: str, *, first: bool = True
    ) -> ModelAnswer:
        """Return the model's answer, emitted as that artifact; one with a schema is only returned.

        `write_body` encodes the request for an endpoint. `first`: nothing of the task has been done before. The tokens
        of attempts that broke off are counted here, those of the answer are its own. Raises Ended.
        """
        attempts = Attempts(self._name, self._pool, self._trying)
        asked = attempts.present or self._pool.first
        try:
            body = write_body(asked.requests)
            chats = present_chats()
            if chats is None:
                return await self._answer(run, attempts, body, write_body, artifact_id, run.traceparent, first=first)
            chat = chats.begin_chat(asked.call, body, run.head.context_id)
            try:
                answer = await self._answer(run, attempts, body, write_body, artifact_id, chat.traceparent, first=first)
            except BaseException as error:
                chat.failed((isinstance(error, Ended) and error.reason) or type(error).__name__)
                raise
        except BaseException:
            attempts.give_up()
            raise
        chat.answered(_reply_of(answer, attempts.present or asked))
        return answer

    async def _answer(
        self,
        run: Run,
        attempts: Attempts,
        body: bytes,
        write_body: Callable[[ModelRequest], bytes],
        artifact_id: str,
        traceparent: str | None,
        *,
        first: bool,
    ) -> ModelAnswer:
        """As `answer`, in the trace `traceparent`. `body` is that for the endpoint which is asked first."""
        pool = self._pool
        artifact = AnswerArtifact(run, artifact_id, keeps=pool.first.model.schema is not None)
        passed = headers_to_pass(run, self._name) if run.sink.gives_headers else NOTHING_PASSED
        if (asked := attempts.present) is None:
            raise failures.unreachable(self._name, pool.wait_s if first else None)
        while True:
            artifact.restart()
            try:
                answer = await self._once(run, asked, body, traceparent, passed, artifact)
            except Trouble as trouble:
                wait_s = attempts.follow(trouble)
                self._tell_attempt(run, asked, trouble, attempts, wait_s)
                if wait_s is None:
                    raise self._task_end(attempts.telling, untouched=first and not artifact.begun) from trouble
            else:
                attempts.succeed()
                await artifact.finish()
                return answer
            if attempts.present is not None and attempts.present is not asked:
                asked = attempts.present
                body = write_body(asked.requests)
            if wait_s:
                await self._trying.pause(wait_s)

    def _tell_attempt(
        self, run: Run, asked: PoolEndpoint, trouble: Trouble, attempts: Attempts, wait_s: float | None
    ) -> None:
        """Tell the operator of an attempt that failed, and what follows: in the log, and in that of the task."""
        if asked.name:
            earlier = read_upstream_notes(run.notes).attempts
            at, reason = timestamp(round(self._trying.now_s() * 1000)), trouble.ended.reason
            failed = UpstreamAttempt(member=asked.name, at=at, reason=reason, why=trouble.why[:WHY_CHARS])
            run.note_soon(tried=write_attempts([*earlier, failed]))
        if wait_s is None or attempts.present is None:
            return
        name, task_id = self._name, run.head.id
        if attempts.present is asked:
            log.info("model %s: task %s: attempt %d in %.1f s", name, task_id, attempts.made, wait_s)
            return
        log.warning(
            "model %s: task %s: %s did not answer (%s): %s is asked in %.1f s",
            name,
            task_id,
            asked.name,
            trouble.ended.reason,
            attempts.present.name,
            wait_s,
        )

    def _task_end(self, trouble: Trouble, *, untouched: bool) -> Ended:
        """How the task ends after the last attempt. `untouched`: nothing of it has been done."""
        ended = trouble.ended
        if ended.retry_after_s is None or not untouched:
            return Ended(ended.state, ended.parts, ended.reason)
        return Ended(ended.state, ended.parts, ended.reason, max(ended.retry_after_s, self._pool.wait_s))

    async def _once(
        self,
        run: Run,
        asked: PoolEndpoint,
        body: bytes,
        traceparent: str | None,
        passed: Mapping[str, str],
        artifact: "AnswerArtifact",
    ) -> ModelAnswer:
        """Make one call. Raises Trouble."""
        reading = CompletionParser(asked.model.model, asked.name)
        begun = False
        began_s = self._pool.clock()
        asked.begin_call()
        try:
            async with asked.endpoint.request_completion(body, traceparent, passed) as flow:
                if not flow.ok:  # nobody charges for an error of its own
                    raise self._trouble_of(run, asked, fault_in(await flow.body(), flow.status), flow)
                begun = True
                asked.calls.waits.add(int((self._pool.clock() - began_s) * 1000))
                artifact.masking = asked.endpoint.masking
                run.working()
                return await self._read(run, asked, flow, reading, artifact)
        except EgressError as error:
            _count_lost(run, asked, reading, taken=error.sent)
            log.warning("model %s: task %s: %s", self._name, run.head.id, error)
            raise failures.lost(self._name, error).explain(str(error)) from error
        except NoToken as error:
            words = asked.endpoint.masking.text(str(error))
            log.warning("model %s: task %s: %s: %s", self._name, run.head.id, type(error).__name__, words)
            raise failures.not_let_in(self._name, error) from error
        except Trouble as trouble:
            _count_lost(run, asked, reading, taken=trouble.charged or (begun and trouble.taken))
            raise
        except BaseException:
            _count_lost(run, asked, reading, taken=True)
            raise
        finally:
            asked.end_call()

    async def _read(
        self, run: Run, asked: PoolEndpoint, flow: Flow, reading: CompletionParser, artifact: "AnswerArtifact"
    ) -> ModelAnswer:
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
                raise failures.cut(self._name).explain("its stream ended before the answer did")
        except NoCompletion as error:
            said = failures.redact(asked.endpoint.masking.text(str(error)), asked.endpoint.key)
            log.warning("model %s: task %s: %s; %s", self._name, run.head.id, said, asked.endpoint.hint)
            raise failures.unreadable(self._name, begun=reading.begun).explain(said) from error
        except Faulted as error:
            raise self._trouble_of(run, asked, error.fault, flow) from error
        if reading.usage_fault:
            said = failures.redact(asked.endpoint.masking.text(reading.usage_fault), asked.endpoint.key)
            log.warning("model %s: task %s: its report of tokens cannot be read: %s", self._name, run.head.id, said)
        calls, refusal = tuple(reading.calls), reading.refusal
        if (masking := artifact.masking).active:
            calls = tuple(Called(each.id, each.name, masking.text(each.arguments)) for each in calls)
            refusal = masking.text(refusal)
        return ModelAnswer(artifact.text, calls, reading.finish, refusal, reading.usage)

    def _trouble_of(self, run: Run, asked: PoolEndpoint, fault: ApiFault, flow: Flow) -> Trouble:
        fault = replace(fault, message=asked.endpoint.masking.text(fault.message))
        said = failures.redact(fault.message, asked.endpoint.key)
        log.warning("model %s: task %s: %d %s %s", self._name, run.head.id, fault.status, fault.code, said)
        trouble = failures.classify_fault(
            self._name,
            fault,
            flow.headers,
            self._trying.now_s(),
            on_refusal=asked.model.on_refusal,
            key=asked.endpoint.key,
        )
        return trouble.explain(f"status {fault.status} {fault.code} {said}" if fault.status else f"{fault.code} {said}")


class AnswerArtifact:
    """The artifact that an answer becomes. `keeps`: nothing is emitted. `masking` removes secrets from its text."""

    __slots__ = ("_fresh", "_id", "_run", "_tail", "_texts", "begun", "keeps", "masking")

    def __init__(self, run: Run, artifact_id: str, *, keeps: bool) -> None:
        self.keeps = keeps
        self.masking = NO_MASKING
        self._tail = ""
        """The end of the answer as it came, in which a secret may have begun."""
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
        self._tail = ""
        self._fresh = True

    async def emit(self, text: str) -> None:
        """Add a piece of the answer; an empty one adds nothing."""
        if not text:
            return
        if self.masking.active:
            before, self._tail = self._tail, (self._tail + text)[-TAIL:]
            text = self.masking.text(self.masking.after(before, text))
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


def _count_lost(run: Run, asked: PoolEndpoint, reading: CompletionParser, *, taken: bool) -> None:
    """Count the tokens of an attempt that gave no answer. Nobody knows them if they were not told, and the endpoint may
    have `taken` the request on."""
    if reading.usage is not None:
        run.usage(reading.usage)
    elif taken:
        run.usage(Usage.unknown(asked.model.model, asked.name))


def _reply_of(answer: ModelAnswer, by: PoolEndpoint) -> ChatReply:
    usage = answer.usage
    return ChatReply(
        by=by.call,
        text=answer.text,
        finish=answer.finish,
        calls=tuple((call.id, call.name, call.arguments) for call in answer.calls),
        input_tokens=None if usage is None else usage.input_tokens,
        output_tokens=None if usage is None else usage.output_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
    )


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
