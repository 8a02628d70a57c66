"""The switches of agents, and of the members of their pools: what operators say, and what servers answer.

Invariant: pure values. A switch is a record of the store (`store.operator_records`), and counts more than the
configuration.
"""

from typing import Literal

from msgspec import Struct

from dragoman.admin.question import Given, Question
from dragoman.admin.tasks import Reason

KIND = "switch"
"""The kind of these records. Their id is that of an agent, or `AGENT/MEMBER` for a member of its pool."""

SwitchState = Literal["enabled", "draining", "disabled"]

RunningTasks = Literal["finish", "cancel"]
"""The lot of the tasks that are at work when an agent is disabled."""


class Switch(Struct, frozen=True, kw_only=True):
    """A switch as an operator has set it: `by` is the operator's principal, `at` the time, `reason` their own words."""

    state: SwitchState
    running: RunningTasks = "finish"
    reason: str = ""
    by: str = ""
    at: str = ""


class SwitchReason(Struct, frozen=True, kw_only=True):
    """Why an operator drains or enables an agent, for other operators: callers never see it."""

    reason: Reason = ""


class SwitchOrder(Struct, frozen=True, kw_only=True):
    """The `reason` for which an operator disables an agent, and what becomes of its `running` tasks."""

    reason: Reason = ""
    running: RunningTasks = "cancel"


class SwitchLine(Switch, frozen=True, kw_only=True):
    """The switch of an agent, or of a member of its pool; `member` is empty for the agent itself."""

    agent: str
    member: str = ""


def _switching(
    name: str, verb: str, given: type[Given], summary: str, path: str = "/agents/{id}"
) -> Question[Given, SwitchLine]:
    return Question(
        name=name,
        path=f"{path}:{verb}",
        summary=summary,
        method="POST",
        given=given,
        optional=True,
        answer=SwitchLine,
        action=f"agents.{verb}",
    )


DRAIN_AGENT = _switching(
    "drainAgent", "drain", SwitchReason, "Let an agent take no new task. Its tasks go on, with answers and messages."
)
DISABLE_AGENT = _switching(
    "disableAgent", "disable", SwitchOrder, "Let an agent take nothing, and cancel what it works on or let that finish."
)
ENABLE_AGENT = _switching("enableAgent", "enable", SwitchReason, "Let an agent take tasks again.")

_MEMBER = "/agents/{id}/members/{member}"
DRAIN_MEMBER = _switching(
    "drainMember", "drain", SwitchReason, "Give a member of an agent's pool no new task. Its tasks go on.", _MEMBER
)
DISABLE_MEMBER = _switching(
    "disableMember",
    "disable",
    SwitchOrder,
    "Give a member of an agent's pool nothing, and cancel what it works on or let that finish.",
    _MEMBER,
)
ENABLE_MEMBER = _switching(
    "enableMember", "enable", SwitchReason, "Give a member of an agent's pool tasks again.", _MEMBER
)
