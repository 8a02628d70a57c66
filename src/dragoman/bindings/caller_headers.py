"""The headers of a request that agents of this server are given.

Invariant: no value holds a line break or another control character but the tab, whatever server parsed the request.
"""

import re

from dragoman.bindings.request import Request
from dragoman.model.errors import InvalidParams
from dragoman.model.headers import CREDENTIALS, HEADERS_BYTES_MAX, RequestHeaders

NONE_SENT = RequestHeaders({})

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def read_headers(request: Request, names: frozenset[bytes]) -> RequestHeaders:
    """The request's headers with these names. Raises InvalidParams for those that no agent is to see.

    A header that was sent several times is one value, with commas (RFC 9110 §5.3), or semicolons for cookies; of
    credentials the last one counts, as for this server itself.
    """
    if names.isdisjoint(request.headers):
        return NONE_SENT
    found: dict[str, str] = {}
    for key, sent in request.header_list:
        if key in names:
            name, value = key.decode("ascii"), _text(sent.strip())
            if name in found and name not in CREDENTIALS:
                value = f"{found[name]}{'; ' if name == 'cookie' else ', '}{value}"
            if _CONTROL.search(value):
                raise InvalidParams(f"headers.{name}", "holds a line break or another control character: leave it out")
            found[name] = value
    for name in CREDENTIALS:
        if name in found and not found[name]:
            del found[name]
    listed = {name: value for name, value in found.items() if name not in CREDENTIALS}
    size = sum(len(name) + len(value.encode()) for name, value in listed.items())
    if size > HEADERS_BYTES_MAX:
        sent_names = ", ".join(listed)
        raise InvalidParams(
            "headers",
            f"{sent_names} have {size} bytes: agents are given {HEADERS_BYTES_MAX} at most: send less in them",
        )
    return RequestHeaders(found)


def _text(value: bytes) -> str:
    """A header's value. UTF-8 is common; RFC 9110 §5.5 leaves the meaning of other bytes open."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
