"""Headers of a caller's request on their way to another server: an agent's, or the endpoint of a model.

Invariant: a value that cannot be sent ends the task of its sender. It never looks like a fault of the other server.
"""

import re
from collections.abc import Mapping

from dragoman.engine.api import Ended, Run
from dragoman.model.headers import CREDENTIALS
from dragoman.model.message import Part
from dragoman.model.task import TaskState

SECRET = frozenset((*CREDENTIALS, "x-agent-api-key", "cookie"))
"""The headers whose values an answer must not repeat to anybody."""

_SENDABLE = re.compile(r"[ -~]*")
"""The values that HTTP and gRPC carry alike (RFC 9110 §5.5, gRPC over HTTP/2)."""


def headers_to_pass(run: Run, name: str) -> Mapping[str, str]:
    """Return the listed headers of the present message; none if they are lost. `name` is the agent's.

    The caller's credentials are not among them: whether they are passed on, or exchanged, is decided elsewhere. Raises
    Ended if a value has other characters than the printable ones of ASCII.
    """
    headers = {header: value for header, value in (run.headers or {}).items() if header not in CREDENTIALS}
    check_sendable(headers, name)
    return headers


def check_sendable(headers: Mapping[str, str], name: str) -> None:
    """Raises Ended for a value that has other characters than the printable ones of ASCII. `name` is the agent's."""
    for header, value in headers.items():
        if not _SENDABLE.fullmatch(value):
            text = f"{name} takes printable ASCII only in the header {header}: send the value encoded."
            raise Ended(TaskState.REJECTED, (Part(text=text),), "header_not_ascii")
