"""Token buckets, one a principal: how often each may call.

Invariant: a principal is let through `per_s` times a second on average and never more than that at once; what is kept
is one number each, and of no more than `kept` principals.
"""

from collections import OrderedDict

KEPT = 10_000
"""Principals remembered. A bucket is full again after a second without a call, so that forgetting it loses nothing:
only of more than these that call within one second, some may call more often than they should."""

SECOND_NS = 1_000_000_000


class Rates:
    """How often principals may call. A bucket holds the tokens of one second, and is kept as when it will be full."""

    def __init__(self, per_s: int, kept: int = KEPT) -> None:
        self.per_s = per_s
        self._kept = kept
        self._interval_ns = SECOND_NS // per_s
        self._full_at_ns: OrderedDict[str, int] = OrderedDict()

    def take(self, principal: str, now_ms: int) -> int:
        """Take a token: 0 if there was one, else after how many seconds, rounded up, there is one again."""
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
