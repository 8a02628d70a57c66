"""The requirements on every store, as cases: `for case in CASES: await case(bench)`.

Invariant: a case uses only the Store protocol, so that each driver meets the same requirements. A Bench makes the
stores; every case gets a fresh one.
"""

from dragoman.testing.store_cases.audit import AUDIT
from dragoman.testing.store_cases.bench import Bench, Case, SetClock
from dragoman.testing.store_cases.calling import CALLING
from dragoman.testing.store_cases.claiming import CLAIMING
from dragoman.testing.store_cases.engines import ENGINES
from dragoman.testing.store_cases.handing import HANDING
from dragoman.testing.store_cases.keys import KEYS
from dragoman.testing.store_cases.leasing import LEASING
from dragoman.testing.store_cases.pushing import PUSHING
from dragoman.testing.store_cases.quotas import QUOTAS
from dragoman.testing.store_cases.reading import READING
from dragoman.testing.store_cases.registering import REGISTERING
from dragoman.testing.store_cases.repeating import REPEATING
from dragoman.testing.store_cases.writing import WRITING

CASES: tuple[Case, ...] = (
    WRITING
    + REPEATING
    + LEASING
    + CALLING
    + READING
    + PUSHING
    + REGISTERING
    + CLAIMING
    + HANDING
    + QUOTAS
    + KEYS
    + AUDIT
    + ENGINES
)
"""Every case there is; a driver's tests run them all."""

__all__ = ["CASES", "Bench", "Case", "SetClock"]
