"""The worker API, as operations of the document.

Invariant: the actions, and what each of them reads and answers, are those of `agents/worker/wire.py`.
"""

from dragoman.agents.worker.wire import ACTIONS, ActionRow
from dragoman.bindings.openapi.a2a import OF_BODIES, encode_reason
from dragoman.bindings.openapi.document import JSON, AnswerForms, ErrorAnswer, OperationForms
from dragoman.bindings.openapi.refusals import describe_refusals
from dragoman.model import errors

WORK = "Workers"

TAGS = {WORK: 'For workers, which do the tasks of agents that are declared with `run = "worker"`.'}

NULLS = frozenset({"LeasedTask"})

REFUSED = (
    errors.InvalidParams,
    errors.UnsupportedOperation,
    errors.Unauthorized,
    errors.Forbidden,
    errors.AgentNotFound,
    errors.NotFound,
    errors.LeaseLost,
    errors.TaskNotFound,
    errors.TooManyRequests,
    errors.InternalError,
    errors.Unavailable,
    *OF_BODIES,
)
"""The errors that any action may be refused with."""


def _operation(action: str, row: ActionRow) -> OperationForms:
    answers = {} if row.answer is None else {"200": AnswerForms(description="Done.", bodies={JSON: row.answer})}
    if row.empty:
        answers["204"] = AnswerForms(description=row.empty)
    return OperationForms(
        name="worker" + "".join(word.title() for word in action.split("-")),
        method="POST",
        path=f"/workers/{{agent}}/{action}",
        summary=row.summary,
        tag=WORK,
        body=row.request,
        answers={**answers, **describe_refusals(REFUSED, encode_reason, ErrorAnswer, JSON)},
    )


WORKERS: tuple[OperationForms, ...] = tuple(_operation(action, row) for action, row in ACTIONS.items() if row.summary)
"""The actions that workers in any language may call."""
