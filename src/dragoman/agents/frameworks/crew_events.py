"""Translates the events of a CrewAI run, which arrive in its own threads, into reports to the caller.

Invariant: only the answer is streamed: the text of the last task, without the thoughts of agents that think aloud.
"""

import json
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Any

from dragoman.agents.frameworks.calls import Calls
from dragoman.agents.python.context import Context

Telling = Callable[[], Awaitable[None]]
"""A report, to be awaited on the event loop."""

THOUGHTS = ("Thought:", "Action:")
"""The first words of a model that is asked to think aloud (ReAct)."""

ANSWER = "Final Answer:"
"""The marker before the answer of such a model."""


class Hearing:
    """A sink for the events of one run. It may be called in any thread. `post` takes texts and reports.

    `last` is the id of the task that makes the answer, None without tasks; `total` is the number of tasks. With
    `shaped`, the answer is data, and no text is streamed.
    """

    def __init__(
        self, ctx: Context, post: Callable[[str | Telling], None], *, last: str | None, total: int, shaped: bool
    ) -> None:
        self._ctx = ctx
        self._post = post
        self._last = last
        self._total = total
        self._shaped = shaped
        self._lock = Lock()
        self._calls = Calls(ctx)
        self._open: dict[str, list[str]] = {}
        self._done = 0
        self._speech = Speech()
        self._gap = False
        self._texts: list[str] = []

    @property
    def said(self) -> str:
        """All the text that was streamed."""
        return "".join(self._texts)

    def __call__(self, source: Any, event: Any) -> None:
        """Handle an event of the run."""
        match event.type:
            case "llm_stream_chunk":
                if self._streams(event):
                    self._say(self._speech.heard(event.chunk))
            case "llm_call_started":
                self._speech = Speech()
            case "llm_call_completed":
                if self._streams(event):
                    self._say(self._speech.ended())
                if event.usage:
                    self._post(self._report_usage(event.usage))
            case "tool_usage_started":
                self._begin(event)
            case "tool_usage_finished" | "tool_usage_error":
                self._end(event)
            case "task_completed" if self._total > 1:
                self._done += 1
                self._post(self._report_step(self._done, event.task_name or ""))

    def turn(self) -> None:
        """Start a new artifact, because the caller is about to be asked."""
        self._gap = False

    async def broken(self) -> None:
        """Report that the run has failed."""
        await self._calls.broken()

    def _streams(self, event: Any) -> bool:
        if self._shaped or (self._last is not None and event.task_id != self._last):
            return False
        kind = getattr(event, "call_type", None)
        return kind is None or kind.value != "tool_call"

    def _say(self, text: str) -> None:
        if text:
            if self._gap and not self._speech.begun:
                text = "\n\n" + text
            self._gap = self._speech.begun = True
            self._texts.append(text)
            self._post(text)

    def _report_usage(self, usage: dict[str, Any]) -> Telling:
        async def tell() -> None:
            self._ctx.usage(input=usage.get("prompt_tokens") or 0, output=usage.get("completion_tokens") or 0)

        return tell

    def _report_step(self, step: int, name: str) -> Telling:
        return lambda: self._ctx.progress(step, self._total, name)

    def _begin(self, event: Any) -> None:
        with self._lock:
            self._open.setdefault(_call_key(event), []).append(event.event_id)
        self._post(lambda: self._calls.began(event.event_id, event.tool_name, event.tool_args))

    def _end(self, event: Any) -> None:
        with self._lock:
            waiting = self._open.get(_call_key(event))
            begun = waiting.pop(0) if waiting else None
        if begun is not None:
            if (failed := getattr(event, "error", None)) is None:
                self._post(lambda: self._calls.ended(begun, event.output))
            else:
                self._post(lambda: self._calls.failed(begun, str(failed)))


class Speech:
    """The words of one model call, without its thoughts."""

    def __init__(self) -> None:
        self._held = ""
        self._open = False
        self.begun = False

    def heard(self, chunk: str) -> str:
        """Add a chunk. Returns the text that can be streamed now."""
        if self._open:
            return chunk
        self._held += chunk
        words = self._held.lstrip()
        if ANSWER in words:
            self._open = True
            return words.partition(ANSWER)[2].lstrip()
        if any(words.startswith(thought) or thought.startswith(words) for thought in THOUGHTS):
            return ""
        self._open = True
        return self._held

    def ended(self) -> str:
        """End the call. Returns text that was held back although it was not a thought."""
        words = self._held.lstrip()
        if self._open or words.startswith(THOUGHTS):
            return ""
        self._open = True
        return self._held


def _call_key(event: Any) -> str:
    """A key by which the end of a call is matched to its beginning: CrewAI gives calls no id."""
    args = event.tool_args
    return f"{event.tool_name} {args if isinstance(args, str) else json.dumps(args, sort_keys=True, default=str)}"
