"""Who is calling.

Invariant: a task belongs to exactly one principal, the one that made it.
"""

from msgspec import Struct


class Principal(Struct, frozen=True):
    """A caller; `id` owns the tasks it makes."""

    id: str


ANONYMOUS = Principal("anonymous")
"""Every caller of a server that has no authentication configured."""
