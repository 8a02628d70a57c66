"""DatabaseClock: the time of the database, extrapolated by this machine's monotonic clock.

Invariant: it agrees with every measurement of the last minutes to within that measurement's uncertainty.
"""

import time


class DatabaseClock:
    """The machine's own time until the first measurement."""

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() / 1e6 - time.monotonic() * 1000

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(time.monotonic() * 1000 + self._offset_ms)

    def measured(self, database_ms: float, before_s: float, after_s: float) -> None:
        """Take in a measurement: the database's time was `database_ms` at some moment between two of the monotonic
        clock. The offset moves only as far as it must, so that the time does not jitter."""
        least, most = database_ms - after_s * 1000, database_ms - before_s * 1000
        self._offset_ms = min(max(self._offset_ms, least), most)
