"""A provider of payments that is slow to answer: `python examples/payment/provider.py --port 7873 --slow 5`.

It charges at once, writes the charge to its standard output, and answers later. A request that brings the key of an
earlier one is answered with that charge, and nothing is charged, as Stripe, Adyen and others do (`Idempotency-Key`).
"""

import argparse
import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock


class Provider(ThreadingHTTPServer):
    """Charges by key. `slow_s` is how long an answer takes."""

    daemon_threads = True

    def __init__(self, port: int, slow_s: float) -> None:
        super().__init__(("127.0.0.1", port), Charges)
        self.slow_s = slow_s
        self._lock = Lock()
        self._charges: dict[str, dict[str, object]] = {}

    def charge(self, key: str, amount: float) -> dict[str, object]:
        """Charge an amount, unless the key was used before. Returns the charge."""
        with self._lock:
            if key not in self._charges:
                self._charges[key] = {"receipt": f"R{len(self._charges) + 1}", "amount": amount}
                print("charged", amount, key, flush=True)
            else:
                print("repeated", amount, key, flush=True)
            return self._charges[key]


class Charges(BaseHTTPRequestHandler):
    """`POST /charges` with `{"amount": 12.5}`."""

    server: Provider

    def do_POST(self) -> None:
        """Charge now, and answer later."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(self.server.charge(self.headers["Idempotency-Key"], asked["amount"])).encode()
        time.sleep(self.server.slow_s)
        with suppress(ConnectionError):  # who asked may have been killed meanwhile
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  the base class's word
        """Print nothing but charges."""


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=7873)
    options.add_argument("--slow", type=float, default=0.0, help="seconds until an answer")
    given = options.parse_args()
    Provider(given.port, given.slow).serve_forever()
