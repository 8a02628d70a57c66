"""A supervisor, and replicas that are mere listeners: each connection is told number, pid and the reloads so far.

`supervised.py supervise PORT CRASHING` starts three replicas, of which the one with the number CRASHING ends as soon as
it listens, or, if it is the first, before that. If CRASHING is -2, the second one listens only once the file of the
variable GATE is there; if it is -3, the third one ends each time before it listens.
"""

import os
import signal
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from dragoman.bindings.listener import bound_socket
from dragoman.config import Config
from dragoman.server.supervision.processes import supervise
from dragoman.server.supervision.supervised import Supervised

STORE = "postgresql://nobody@127.0.0.1/nothing"


def main() -> None:
    """Be what the first argument says."""
    role, port, crashing = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if role == "supervise":
        config = Config(store=STORE, port=port, processes=3, shutdown_grace_s=0.2)
        supervise(
            config,
            lambda place, bound: [sys.executable, str(Path(__file__)), place.spell(), str(bound), str(crashing)],
            lambda text: print(text, flush=True),
            lambda: replace(config, processes=4, keepalive_s=1.0),
        )
    else:
        serve(Supervised.parse(role), port, crashing)


def serve(place: Supervised, port: int, crashing: int) -> None:
    """Listen until a signal comes."""
    place.end_with_supervisor()
    reloads = 0

    def reload(number: int, frame: object) -> None:
        nonlocal reloads
        reloads += 1

    signal.signal(signal.SIGHUP, reload)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    if crashing == place.number == 1 or crashing == -3 == -place.number:
        sys.exit(7)
    if crashing == -2 == -place.number:
        while not Path(os.environ["GATE"]).exists():
            time.sleep(0.02)
    with bound_socket("127.0.0.1", port, shared=True) as bound:
        bound.listen()
        place.report(f"listens on {port}")
        if crashing == place.number:
            sys.exit(8)
        while True:
            connection, _ = bound.accept()
            with connection:
                connection.sendall(f"{place.number} {os.getpid()} {reloads}".encode())


main()
