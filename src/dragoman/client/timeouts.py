"""How long a client waits, and for what: each wait has a name, which the error names when it was too long.

Invariant: no wait on an agent is without an end.
"""

from msgspec import Struct


class Timeouts(Struct, frozen=True, kw_only=True):
    """`connect_s` is for a connection to come about, `card_s` for a card, `answer_s` for an answer, or the beginning of
    a stream, once the call is on its way; `idle_s` for the next bytes of a stream; `mend_s` for a stream that broke to
    be taken up again: as long as nothing answers.

    An Egress of the caller's own has its own time for connections.
    """

    connect_s: float = 5.0
    card_s: float = 10.0
    answer_s: float = 330.0
    """Servers answer a blocking send after 5 minutes with the task as it stands."""
    idle_s: float = 120.0
    """Servers of A2A send a comment every 15 to 30 s, if they send any; a stream that is cut is taken up again."""
    mend_s: float = 120.0
    """A restart of an agent, or of what stands before it, takes less."""


TIMEOUTS = Timeouts()
