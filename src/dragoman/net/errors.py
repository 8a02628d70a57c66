"""What can go wrong on the way out.

    EgressError
    ├── BadUrl           not a URL that can be called                        nothing went out
    ├── AddressRefused   the policy does not let that address be dialled     nothing went out
    ├── Unreachable      no connection: refused, no such host, TLS, too slow nothing went out
    ├── TimedOut         connected, but no whole answer in time              the request may have been carried out
    ├── Broken           the connection ended, or spoke something not HTTP   the request may have been carried out
    └── TooLarge         the answer is over the limit                        the request has been carried out
    Unresolved           a name without an address; whoever asked says what that means for the request

Invariant: `sent` False means that the other side has seen nothing of the request, so that it may be made elsewhere.
"""


class EgressError(Exception):
    """A request that got no answer. `url` is without credentials and query; the message names it and what to check."""

    sent = True

    def __init__(self, url: str, message: str) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url


class BadUrl(EgressError):
    """The URL is not one that can be called."""

    sent = False


class AddressRefused(EgressError):
    """The address that the host name stands for may not be dialled."""

    sent = False


class Unreachable(EgressError):
    """There was no connection."""

    sent = False


class TimedOut(EgressError):
    """The request went out, and no whole answer came in time."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(url, f"no answer within {timeout_s:g} s")
        self.timeout_s = timeout_s


class Broken(EgressError):
    """The connection ended before the answer did, or what came is not HTTP."""


class TooLarge(EgressError):
    """The answer is larger than allowed; the rest of it was not read."""

    def __init__(self, url: str, max_bytes: int) -> None:
        super().__init__(url, f"the answer is larger than the {max_bytes} bytes allowed")
        self.max_bytes = max_bytes


class Unresolved(OSError):
    """A host has no address, or DNS does not say: the message goes after its name. An OSError, as for all resolvers."""
