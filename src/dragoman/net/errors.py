"""The errors of outgoing requests.

    EgressError
    ├── BadUrl           not a URL that can be called                        nothing was sent
    ├── AddressRefused   the policy forbids dialling that address            nothing was sent
    ├── Unreachable      no connection: refused, no such host, TLS, too slow nothing was sent
    │   └── CertificateWanted    it asks for a certificate of the client      nothing was read
    ├── TimedOut         connected, but no complete answer in time           the request may have been carried out
    ├── Broken           the connection ended, or its answer is not HTTP     the request may have been carried out
    │   └── Compressed   the answer is compressed, and was not unpacked      the request has been carried out
    └── TooLarge         the answer is over the limit                        the request has been carried out
    Unresolved           a name without an address; the caller decides what that means for the request

Invariant: `sent` False means that the other side has seen nothing of the request, so it may be sent elsewhere.
"""


class EgressError(Exception):
    """A request that got no answer. `url` has no credentials and no query; the message says what to check."""

    sent = True

    def __init__(self, url: str, message: str) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url


class BadUrl(EgressError):
    """The URL cannot be called."""

    sent = False


class AddressRefused(EgressError):
    """The policy forbids dialling the host's address."""

    sent = False


class Unreachable(EgressError):
    """No connection could be made."""

    sent = False


class CertificateWanted(Unreachable):
    """The other side takes only clients that show a certificate which it trusts (mutual TLS)."""

    def __init__(
        self, url: str, message: str = "it takes only clients with a certificate that it trusts (mutual TLS)"
    ) -> None:
        super().__init__(url, message)


class TimedOut(EgressError):
    """The request was sent, and no complete answer came in time."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(url, f"no answer within {timeout_s:g} s")
        self.timeout_s = timeout_s


class Broken(EgressError):
    """The connection ended before the answer did, or the answer is not HTTP."""


class Compressed(Broken):
    """The answer is compressed although the request asked for identity. It was not unpacked.

    A small answer can expand to a huge one.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, "the answer is compressed although the request asked for identity")


class TooLarge(EgressError):
    """The answer is larger than allowed; the rest of it was not read."""

    def __init__(self, url: str, max_bytes: int) -> None:
        super().__init__(url, f"the answer is larger than the {max_bytes} bytes allowed")
        self.max_bytes = max_bytes


class Unresolved(OSError):
    """A host has no address, or DNS does not say. An OSError, as in all resolvers.

    The message completes a sentence that begins with the host's name.
    """
