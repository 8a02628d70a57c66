"""The waits of a client. Each has a name, which the error quotes when it takes too long.

Invariant: every wait on an agent ends.
"""

from msgspec import Struct


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long a client waits, in seconds.

    `connect_s` bounds making a connection, `card_s` fetching a card, `answer_s` an answer or the beginning of a stream
    once the request is sent, `idle_s` the next bytes of a stream, and `mend_s` resuming a broken stream while nothing
    answers.

    An Egress that the caller passes has its own connect timeout.
    """

    connect_s: float = 5.0
    card_s: float = 10.0
    answer_s: float = 330.0
    """Servers answer a blocking send after 5 minutes with the task as it stands."""
    idle_s: float = 120.0
    """A2A servers send a comment every 15 to 30 s, if they send any; a stream that is cut is resumed."""
    mend_s: float = 120.0
    """Long enough for a restart of an agent, or of its proxy."""


TIMEOUTS = Timeouts()
