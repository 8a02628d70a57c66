"""Exit with 0 if the server in this container answers `/health`, for HEALTHCHECK of the Containerfile.

Invariant: it reads the variables that the server reads, so that another port or a certificate needs no other check. A
port in `dragoman.toml` is not seen here: set DRAGOMAN_PORT instead.
"""

import http.client
import os
import ssl
import sys

PORT = int(os.environ.get("DRAGOMAN_PORT") or 7870)
TIMEOUT_S = 3.0


def main() -> None:
    """Ask once. Exits with 1 if there is no answer with 200."""
    try:
        connection = _connect()
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except OSError as error:
        sys.exit(f"no answer on port {PORT}: {error}")
    if status != 200:
        sys.exit(f"/health answers {status}")


def _connect() -> http.client.HTTPConnection:
    if not os.environ.get("DRAGOMAN_TLS_CERT"):
        return http.client.HTTPConnection("127.0.0.1", PORT, timeout=TIMEOUT_S)
    context = ssl.create_default_context()
    context.check_hostname = False  # the certificate is for the name that clients use
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", PORT, timeout=TIMEOUT_S, context=context)


if __name__ == "__main__":
    main()
