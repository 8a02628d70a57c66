"""Rates: a token bucket for each principal, which limits how often it may call.

Invariant: a principal gets through `per_s` times a second on average, and never more often at once. The memory is one
number for each of at most `kept` principals.
"""

from collections import OrderedDict

KEPT = 10_000
"""Principals remembered. A bucket is full again after a second without a call, so that forgetting it loses nothing.
Only if more principals than this call within one second may some of them call too often."""

SECOND_NS = 1_000_000_000


class Rates:
    """Limits how often principals may call. A bucket holds the tokens of one second, stored as when it will be full."""

    def __init__(self, per_s: int, kept: int = KEPT) -> None:
        self.per_s = per_s
        self._kept = kept
        self._interval_ns = SECOND_NS // per_s
        self._full_at_ns: OrderedDict[str, int] = OrderedDict()

    def take(self, principal: str, now_ms: int) -> int:
        """Take a token and return 0, or return after how many seconds, rounded up, there is one again."""
        now_ns = now_ms * 1_000_000
        empty_ns = now_ns + SECOND_NS
        full_at_ns = self._full_at_ns.get(principal, now_ns)
        if full_at_ns < now_ns:
            full_at_ns = now_ns
        elif full_at_ns > empty_ns:
            full_at_ns = self._full_at_ns[principal] = empty_ns  # the clock was set back
        full_at_ns += self._interval_ns
        if full_at_ns > empty_ns:
            return -((empty_ns - full_at_ns) // SECOND_NS)
        self._full_at_ns[principal] = full_at_ns
        self._full_at_ns.move_to_end(principal)
        if len(self._full_at_ns) > self._kept:
            self._full_at_ns.popitem(last=False)
        return 0
