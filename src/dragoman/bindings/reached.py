"""The URL under which a request reached the server, for cards and links that lead back to it.

Invariant: the operator's `public_url` counts first; a Host header counts only if it is well-formed.
"""

import re

from dragoman.bindings.http import Request

HOST = re.compile(rb"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


def reached(request: Request, public_url: str | None) -> str:
    """The base URL, without a slash at the end: `public_url`, else the URL that the request names."""
    if public_url is not None:
        return public_url
    scheme, host = request.scope.get("scheme", "http"), request.headers.get(b"host", b"")
    if HOST.fullmatch(host):
        return f"{scheme}://{host.decode()}"
    address, port = request.scope.get("server") or ("127.0.0.1", 80)
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"
