"""Answers: finds the function that answers a question of an operator, and notes what became of it.

Invariant: every answer and every refusal has an entry in the audit trail under the operator's own name, but for what
`Question` says. Equal reads of a moment are made once.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic

from msgspec import Struct

from dragoman.admin.question import Answer, Given, Question
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.shared_reads import SharedReads


class Asked(Struct, Generic[Given], frozen=True):
    """A question as it was asked: by whom, with what, and about which id; empty if the path has none.

    `position` is the last id that the reader of a stream has seen; None if it has seen none.
    """

    operator: Operator
    given: Given
    id: str = ""
    position: str | None = None


Function = Callable[[Asked[Any]], Awaitable[Any]]

Functions = dict[str, Function]
"""The functions that answer, by the names of their questions."""


def bind(
    question: Question[Given, Answer], function: Callable[[Asked[Given]], Awaitable[Answer]]
) -> tuple[str, Function]:
    """The function that answers a question, for a mapping. It raises A2AError or StoreError."""
    return question.name, function


class Answers:
    """Answers questions by their functions. Without `shared` reads each read is made for itself."""

    def __init__(self, functions: Functions, notes: AccessNotes, shared: SharedReads | None = None) -> None:
        self._functions = functions
        self._notes = notes
        self._shared = shared

    async def answer(self, question: Question[Given, Answer], asked: Asked[Given]) -> Answer:
        """Answer a question. Raises A2AError."""
        if question.check is not None:
            question.check(asked.given)
        function: Callable[[Asked[Given]], Awaitable[Answer]] = self._functions[question.name]
        if question.shared and self._shared is not None:
            work: Awaitable[Answer] = self._shared.read((question.name, asked.id, asked.given), lambda: function(asked))
        else:
            work = function(asked)
        if not question.action:
            return await work
        return await self._notes.noted(
            asked.operator,
            question.action_of(asked.given),
            work,
            task_id=question.task_of(asked.id),
            subject=question.subject_of(asked.id, asked.given, None),
            made=partial(question.subject_of, asked.id, asked.given),
        )
