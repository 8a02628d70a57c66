"""Run simulations by hand: `python -m tests.simulation 17` prints the history of seed 17, `1-500` those that go wrong.

With `--mutation NAME` the code under test has one of the bugs of `tests.simulation.mutations`.
"""

import argparse
import time

from tests.simulation.mutations import MUTATIONS
from tests.simulation.world import simulate


def main() -> None:
    """Run the seeds that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", help="a seed, or a range like 1-500")
    parser.add_argument("--mutation", choices=MUTATIONS, help="put this bug in")
    options = parser.parse_args()
    change = MUTATIONS.get(options.mutation)
    first, _, last = options.seeds.partition("-")
    if not last:
        print(simulate(int(first), change).report())
        return
    began_s, wrong, steps = time.perf_counter(), 0, 0
    for seed in range(int(first), int(last) + 1):
        outcome = simulate(seed, change)
        steps += outcome.steps
        if outcome.wrong:
            wrong += 1
            print(f"{seed}: {outcome.wrong[0][:300]}")
    count = int(last) - int(first) + 1
    took_s = time.perf_counter() - began_s
    print(f"{wrong} of {count} seeds went wrong; {took_s / count * 1000:.1f} ms and {steps // count} steps each")


if __name__ == "__main__":
    main()
