"""The requirements on every store, as cases: `for case in CASES: await case(bench)`.

Invariant: a case uses only the Store protocol, so that each driver meets the same requirements. A Bench makes the
stores; every case gets a fresh one.
"""

from dragoman.testing.store_cases.appends import APPENDS
from dragoman.testing.store_cases.audit import AUDIT
from dragoman.testing.store_cases.bench import Bench, Case, SetClock
from dragoman.testing.store_cases.calls import CALLS
from dragoman.testing.store_cases.claims import CLAIMS
from dragoman.testing.store_cases.damage import DAMAGE
from dragoman.testing.store_cases.deletes import DELETES
from dragoman.testing.store_cases.deliveries import DELIVERIES
from dragoman.testing.store_cases.engines import ENGINES
from dragoman.testing.store_cases.figures import FIGURES
from dragoman.testing.store_cases.keys import KEYS
from dragoman.testing.store_cases.leases import LEASES
from dragoman.testing.store_cases.lists import LISTS
from dragoman.testing.store_cases.operators import OPERATORS
from dragoman.testing.store_cases.pauses import PAUSES
from dragoman.testing.store_cases.quotas import QUOTAS
from dragoman.testing.store_cases.reads import READS
from dragoman.testing.store_cases.receipts import RECEIPTS
from dragoman.testing.store_cases.repeats import REPEATS
from dragoman.testing.store_cases.replicas import REPLICAS
from dragoman.testing.store_cases.searches import SEARCHES
from dragoman.testing.store_cases.shared import SHARED
from dragoman.testing.store_cases.sizes import SIZES
from dragoman.testing.store_cases.usage import USAGE
from dragoman.testing.store_cases.webhooks import WEBHOOKS
from dragoman.testing.store_cases.worker_leases import WORKER_LEASES

CASES: tuple[Case, ...] = (
    APPENDS
    + REPEATS
    + LEASES
    + WORKER_LEASES
    + REPLICAS
    + CALLS
    + READS
    + LISTS
    + SEARCHES
    + DELIVERIES
    + WEBHOOKS
    + CLAIMS
    + SIZES
    + PAUSES
    + RECEIPTS
    + DELETES
    + QUOTAS
    + KEYS
    + AUDIT
    + SHARED
    + DAMAGE
    + FIGURES
    + USAGE
    + ENGINES
    + OPERATORS
)
"""Every case there is; a driver's tests run them all."""

__all__ = ["CASES", "Bench", "Case", "SetClock"]
