"""What a peer can answer instead of a result.

    PeerError
    ├── HttpRefusal   a status that is not 2xx
    ├── RpcError      a JSON-RPC error
    └── NoToken       no token for it: it was not asked

An answer that is no answer at all is `InvalidAgentResponse`; no answer is an `EgressError`.

Invariant: a PeerError means that the peer has not done what was asked.
"""


class PeerError(Exception):
    """The peer refused. `url` is where."""

    def __init__(self, url: str, message: str) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url


class HttpRefusal(PeerError):
    """The peer answered with an HTTP status that is not 2xx; redirects are not followed."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(url, f"answered with HTTP status {status}, expected 200")
        self.status = status


class RpcError(PeerError):
    """The peer answered with a JSON-RPC error. `text` is its message."""

    def __init__(self, url: str, code: int, text: str) -> None:
        super().__init__(url, f"answered with JSON-RPC error {code}: {text[:200]}")
        self.code = code
        self.text = text


class NoToken(PeerError):
    """No token was to be had, so that nothing was asked of the peer. `permanent`: nor will it be another time."""

    def __init__(self, url: str, message: str, *, permanent: bool = False) -> None:
        super().__init__(url, message)
        self.permanent = permanent
