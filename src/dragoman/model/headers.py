"""The headers of callers' requests that agents are given or that are passed on to other servers.

Invariant: nothing here can be encoded, and no repr shows a value, so that they stay in memory.
"""

from collections.abc import Mapping
from types import MappingProxyType

CREDENTIALS = ("authorization", "x-api-key")
"""The headers that `credentials = { forward = true }` passes on without naming them."""

SUBJECT = "authorization"
"""The header with the token of a caller that can be exchanged."""

HEADERS_BYTES_MAX = 8 * 1024
"""Most bytes of the listed headers of one request, names and values together."""

MESSAGES_MAX = 8
"""The newest messages of a task whose headers are kept: an agent that works has seldom more to read."""

HEADER_BYTES = 200
"""About how many bytes a header takes in memory beside its characters."""


class RequestHeaders:
    """Headers of one request. Their names are in lower case."""

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers

    def pick(self, names: tuple[str, ...]) -> Mapping[str, str]:
        """Return those with these names, as a mapping that cannot be changed."""
        headers = self.headers
        return MappingProxyType({name: headers[name] for name in names if name in headers})

    @property
    def credentials(self) -> "RequestHeaders | None":
        """The caller's credentials; None if the request had none."""
        shown = self.pick(CREDENTIALS)
        return RequestHeaders(shown) if shown else None


class TaskHeaders:
    """The headers of the requests that brought the newest messages of one task, by the ids of the messages."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Mapping[str, RequestHeaders]) -> None:
        self._requests = dict(requests)

    @property
    def newest(self) -> RequestHeaders:
        """The headers of the newest request."""
        return next(reversed(self._requests.values()))

    def find_request(self, message_id: str) -> RequestHeaders | None:
        """The headers of the request that brought a message; None if they are not here."""
        return self._requests.get(message_id)

    def passed_on(self, message_id: str | None) -> RequestHeaders | None:
        """The headers of a message, with the newest credentials, for the task that its task makes or answers.

        None if they are not here. Without an id, they are those of the newest request.
        """
        request = self.newest if message_id is None else self._requests.get(message_id)
        if request is None or request is self.newest:
            return request
        listed = {name: value for name, value in request.headers.items() if name not in CREDENTIALS}
        return RequestHeaders({**listed, **self.newest.pick(CREDENTIALS)})

    def followed_by(self, message_id: str, request: RequestHeaders) -> "TaskHeaders":
        """Return them with those of another message, which is the newest now, and without the oldest ones."""
        known = {key: value for key, value in self._requests.items() if key != message_id}
        return TaskHeaders(dict([*known.items(), (message_id, request)][-MESSAGES_MAX:]))

    def restricted_to(self, names: tuple[str, ...]) -> "TaskHeaders":
        """Return those with these names."""
        return TaskHeaders({key: RequestHeaders(request.pick(names)) for key, request in self._requests.items()})

    def by_message(self) -> dict[str, dict[str, str]]:
        """Return plain copies by message, to be sent to a worker of the agent that is given them."""
        return {message_id: dict(request.headers) for message_id, request in self._requests.items()}

    @property
    def size(self) -> int:
        """About how many bytes they take in memory."""
        texts = sum(
            len(name) + len(value) + HEADER_BYTES
            for request in self._requests.values()
            for name, value in request.headers.items()
        )
        return texts + len(self._requests) * HEADER_BYTES
