"""DirectRun: one execution of an agent that answers with a Message instead of a task.

Invariant: nothing is written while it runs. Everything that the agent emits becomes one message.
"""

import asyncio
from asyncio import get_running_loop

from dragoman.engine.api import Ended, Reject, Run, Runner
from dragoman.engine.runs.endings import failed
from dragoman.engine.runs.message_sink import MessageSink
from dragoman.engine.runs.services import RunServices
from dragoman.model.errors import A2AError, InternalError, Unavailable, UnsupportedOperation
from dragoman.model.headers import TaskHeaders
from dragoman.model.message import Message, Part
from dragoman.model.task import TaskHead, TaskState, Usage


class DirectRun:
    """An execution of `runner` for a `message` that gets a Message."""

    def __init__(
        self,
        runner: Runner,
        head: TaskHead,
        message: Message,
        services: RunServices,
        headers: TaskHeaders | None = None,
    ) -> None:
        self._runner = runner
        self._head = head
        self._sink = MessageSink(head, message, services, traits=runner.traits, headers=headers)
        self._run = Run(head, message, self._sink, services.bounds, traceparent=head.traceparent)
        self._working: asyncio.Task[None] | None = None
        self._stopped: A2AError | None = None

    @property
    def agent(self) -> str:
        """The id of the agent."""
        return self._head.agent

    def stop(self, error: A2AError) -> None:
        """Stop the agent. `answer` raises the error."""
        self._stopped = error
        if self._working is not None:
            self._working.cancel()

    @property
    def used(self) -> Usage | None:
        """The tokens used so far."""
        return self._sink.used

    async def answer(self, message_id: str, timeout_s: float, setting: str = "blocking_timeout_s") -> Message:
        """Run the agent and return everything it emitted as one message.

        Raises UnsupportedOperation if it rejects, Unavailable if it takes longer than `timeout_s`, which `setting`
        says, the error with which it is stopped, else InternalError.
        """
        limit, last = asyncio.timeout(timeout_s), tuple[Part, ...]()
        try:
            async with limit:
                self._working = get_running_loop().create_task(self._run_to_end())
                await self._working
        except Reject as reject:
            raise UnsupportedOperation(str(reject) or "the agent rejected the message") from reject
        except Ended as ended:
            last = ended.parts
            if ended.state is TaskState.REJECTED:
                raise UnsupportedOperation(
                    "".join(part.text or "" for part in last) or "the agent rejected the message"
                ) from ended
            if ended.state is not TaskState.COMPLETED:
                raise InternalError(failed(self._head, "failed", ended)) from ended
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            if self._stopped is not None:
                raise self._stopped from error
            raise InternalError(failed(self._head, "canceled itself", error)) from error
        except BaseException as error:
            if limit.expired():
                raise Unavailable(f"{self._head.agent} did not answer within {timeout_s:g} s ({setting})") from error
            raise InternalError(failed(self._head, "raised", error)) from error
        return self._sink.answer(last, message_id)

    async def _run_to_end(self) -> None:
        """Run the agent. Raises what it raises, or TypeError or ValueError if its last words cannot be sent.

        It has an asyncio task of its own: the call's task is not the agent's to cancel.
        """
        try:
            await self._runner.run(self._run)
        except Ended as ended:
            end = ended.check(self._run.bounds)
            raise Ended(end.state, end.parts, end.reason) from ended
        except Reject as reject:
            self._run.bounds.text("reason", str(reject))
            raise
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as ended:  # no asyncio task can end with one
            raise RuntimeError(f"{type(ended).__name__} in an agent") from ended
