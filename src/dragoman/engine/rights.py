"""Rights: whose tasks a caller reads and changes, which is its own and what its team shares.

Invariant: this is the one place that says so. What a caller may not read does not exist for it (invariant 9).
"""

from enum import Enum, auto

from dragoman.model.errors import Forbidden
from dragoman.model.principal import Principal, Sharing
from dragoman.model.task import TaskHead
from dragoman.store.members import TeamMembers


class Right(Enum):
    """What a caller needs to have for an operation on a task.

    READ: get, list and follow it. CHANGE: answer and cancel it. OWN: delete it, and have its webhooks, whose tokens are
    for nobody else.
    """

    READ = auto()
    CHANGE = auto()
    OWN = auto()


def readable(principal: Principal) -> str | TeamMembers:
    """The owners whose tasks the principal may read: itself, or all members of a team that shares its tasks."""
    if principal.shared is Sharing.NONE or not principal.team:
        return principal.id
    return TeamMembers(principal.team)


def may_read(principal: Principal, head: TaskHead) -> bool:
    """Whether the principal may read a task."""
    if head.owner == principal.id:
        return True
    return principal.shared is not Sharing.NONE and bool(principal.team) and head.team == principal.team


def check_right(principal: Principal, head: TaskHead, right: Right) -> None:
    """Check a right on a task that the principal may read. Raises Forbidden."""
    if head.owner == principal.id or right is Right.READ or (right is Right.CHANGE and principal.shared is Sharing.ALL):
        return
    if right is Right.OWN:
        raise Forbidden(
            f"task {head.id} is another member's of your team: only its owner deletes it or has its webhooks"
        )
    raise Forbidden(
        f"task {head.id} is another member's of your team, which lets you read it: to answer or cancel it takes "
        'shared = "all" in the [[teams]] of the server'
    )
