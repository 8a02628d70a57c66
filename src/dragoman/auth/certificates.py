"""Certificates: client certificates that a proxy has verified and names in a header.

Invariant: the header counts only if the socket's peer is a trusted proxy; otherwise it is ignored.
"""

import hashlib
import re
import ssl
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from dragoman.auth.proxies import TrustedProxies
from dragoman.model.principal import Principal

XFCC = b"x-forwarded-client-cert"
"""Envoy's header, which holds several things about the certificate."""

NAMES = ("subject", "uri", "hash")
"""The fields that name a certificate in Envoy's header, best first. A hash changes with each renewal."""

ABSENT = ("", "-", "(null)")
"""The values that proxies send for a client without a certificate."""

VALUE_MAX = 16 * 1024
NAME_MAX = 1000

REMEMBERED = 1024
"""How many pairs of proxy and value have their principal cached."""

_PAIR = re.compile(r'\s*([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^;,"]*)\s*(;|,|$)', re.DOTALL)


class Certificates:
    """Identifies callers whose certificate a trusted proxy has verified."""

    def __init__(self, header: str, trusted_proxies: Sequence[str]) -> None:
        """`trusted_proxies` are networks. Raises ValueError for one that is not."""
        self._header = header.lower().encode("latin-1")
        self._proxies = TrustedProxies(trusted_proxies)
        self._principals: dict[tuple[str, bytes], Principal | None] = {}

    def principal(self, headers: Mapping[bytes, bytes], peer: str | None) -> Principal | None:
        """The caller, or None if no trusted proxy names a certificate. `peer` is the address of the socket."""
        value = headers.get(self._header)
        if not value or peer is None:
            return None
        try:
            return self._principals[peer, value]
        except KeyError:
            pass
        name = _name(value, xfcc=self._header == XFCC) if self._proxies.trusts(peer) else None
        principal = None if name is None else Principal(f"cert:{name}")
        if principal is not None:
            if len(self._principals) >= REMEMBERED:
                self._principals.pop(next(iter(self._principals)))
            self._principals[peer, value] = principal
        return principal


def _name(value: bytes, *, xfcc: bool) -> str | None:
    """The name in the header's value; None if there is none, or if it cannot be an id."""
    if len(value) > VALUE_MAX:
        return None
    try:
        text = value.decode().strip()
    except UnicodeDecodeError:
        text = value.decode("latin-1").strip()
    if text.startswith("-----BEGIN"):
        return _fingerprint(text)
    name = _of_xfcc(text) if xfcc else text
    return name if name not in ABSENT and len(name) <= NAME_MAX and name.isprintable() else None


def _fingerprint(text: str) -> str | None:
    """The SHA-256 of a whole certificate, which nginx percent-encodes (`$ssl_client_escaped_cert`).

    Nothing else is decoded: a name that contains `%2C` must not become one with a comma.
    """
    try:
        return "sha256:" + hashlib.sha256(ssl.PEM_cert_to_DER_cert(unquote(text))).hexdigest()
    except ValueError:
        return None


def _of_xfcc(text: str) -> str:
    """The name in the last element of Envoy's header, which our own peer has added; empty if there is none."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            return ""
        key, value = pair[1].lower(), pair[2]
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        found.setdefault(key, value.strip())
        position = pair.end()
        if pair[3] == "," and position < len(text):
            found = {}
    return next((found[name] for name in NAMES if found.get(name)), "")
