"""The cookies of the console: how they are named, read and set.

Invariant: no script can read one, and over TLS no other host of the domain can set one.
"""

from typing import Literal

from dragoman.bindings.request import Header, Request


class ConsoleCookie:
    """One cookie. `max_age_s` is how long browsers keep it; None: until they are closed."""

    def __init__(
        self, name: str, same_site: Literal["Strict", "Lax"], public_url: str | None, max_age_s: int | None = None
    ) -> None:
        self._name = name
        self._same_site = same_site
        self._public_url = public_url
        self._max_age_s = max_age_s

    def read(self, request: Request) -> str | None:
        """The value in the request's cookies.

        Others of the same host may be malformed: `http.cookies` would give up at the first such.
        """
        raw = request.headers.get(b"cookie")
        if raw is None:
            return None
        name = self._full_name(request)
        pairs = [pair.strip().partition("=") for pair in raw.decode("latin-1").split(";")]
        return next((value for key, _, value in reversed(pairs) if key == name and value), None)

    def set(self, request: Request, value: str) -> Header:
        """The header that makes the browser keep the value, or forget it if it is empty."""
        fields = [f"{self._full_name(request)}={value}", "Path=/", "HttpOnly", f"SameSite={self._same_site}"]
        if request.base_url(self._public_url).startswith("https:"):
            fields.append("Secure")
        if not value:
            fields.append("Max-Age=0")
        elif self._max_age_s is not None:
            fields.append(f"Max-Age={self._max_age_s}")
        return b"set-cookie", "; ".join(fields).encode()

    def _full_name(self, request: Request) -> str:
        """Browsers send a cookie to all ports of a host, so that the name has to tell servers on one machine apart.

        With the prefix `__Host-` (RFC 6265bis §4.1.3.2) no other host of the domain can set the cookie.
        """
        base_url = request.base_url(self._public_url)
        port = base_url.rpartition(":")[2]
        name = f"{self._name}-{port}" if port.isdecimal() else self._name
        return f"__Host-{name}" if base_url.startswith("https:") else name
