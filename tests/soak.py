"""How often the tests try what is left to chance.

Invariant: what `make test` tries differs from run to run only by what the machine is doing; `make test-soak` tries new
values each time, and many of them.
"""

import os

SOAK = bool(os.environ.get("SOAK"))
"""Whether this is `make test-soak`."""


def times(usually: int, in_soak: int) -> int:
    """How often to try: `usually` times by default."""
    return in_soak if SOAK else usually
