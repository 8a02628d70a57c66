"""A model in the process of its agent, for frameworks that take a class as their model.

Invariant: it is asked in the loop of its agent only, one word at a time.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from tests.frameworks.completions import Answer


class ScriptedModel:
    """Says what the test wrote down, and keeps what it was given: texts and images of each request."""

    def __init__(self, answers: Sequence[Answer | str]) -> None:
        self.answers = [Answer(answer) if isinstance(answer, str) else answer for answer in answers]
        self.left = threading.Event()
        self.requests: list[tuple[Sequence[str], Sequence[bytes]]] = []

    def said(self, number: int = -1) -> Sequence[str]:
        """See `Model`."""
        return self.requests[number][0]

    def images(self, number: int = -1) -> Sequence[bytes]:
        """See `Model`."""
        return self.requests[number][1]

    def ask(self, texts: Sequence[str], images: Sequence[bytes] = ()) -> Answer:
        """The answer to a request."""
        self.requests.append((texts, images))
        return self.answers.pop(0)

    async def words_of(self, answer: Answer) -> AsyncIterator[str]:
        """The words of an answer, which may be held after the first one."""
        for number, word in enumerate(answer.words):
            if number == 1 and answer.held is not None:
                await self._hold(answer.held)
            yield word

    async def _hold(self, held: threading.Event) -> None:
        try:
            while not held.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.left.set()
            raise


@contextmanager
def scripted(*answers: Answer | str) -> Iterator[ScriptedModel]:
    """The model, for the block."""
    yield ScriptedModel(answers)
