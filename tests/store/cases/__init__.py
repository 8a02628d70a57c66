"""The requirements on every store, as cases: `for case in CASES: await case(bench)`.

Invariant: a case uses only the Store protocol, so that each driver meets the same requirements. A Bench makes the
stores; every case gets a fresh one.
"""

from tests.store.cases.appends import APPENDS
from tests.store.cases.audit import AUDIT
from tests.store.cases.bench import Bench, Case, SetClock
from tests.store.cases.calls import CALLS
from tests.store.cases.claims import CLAIMS
from tests.store.cases.damage import DAMAGE
from tests.store.cases.deletes import DELETES
from tests.store.cases.deliveries import DELIVERIES
from tests.store.cases.engines import ENGINES
from tests.store.cases.figures import FIGURES
from tests.store.cases.keys import KEYS
from tests.store.cases.leases import LEASES
from tests.store.cases.lists import LISTS
from tests.store.cases.operators import OPERATORS
from tests.store.cases.pauses import PAUSES
from tests.store.cases.quotas import QUOTAS
from tests.store.cases.reads import READS
from tests.store.cases.receipts import RECEIPTS
from tests.store.cases.repeats import REPEATS
from tests.store.cases.replicas import REPLICAS
from tests.store.cases.searches import SEARCHES
from tests.store.cases.shared import SHARED
from tests.store.cases.sizes import SIZES
from tests.store.cases.usage import USAGE
from tests.store.cases.webhooks import WEBHOOKS
from tests.store.cases.worker_leases import WORKER_LEASES

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
