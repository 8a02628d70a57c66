"""Where an agent of another server is, and what is known of how it is to be spoken to."""

from collections.abc import Callable

from msgspec import Struct

from dragoman.client import Timeouts
from dragoman.client.credentials import Credentials
from dragoman.net.egress import Egress

Made = Callable[[Egress], Credentials | None]
"""What makes credentials, given the way by which tokens are fetched."""


class Address(Struct, frozen=True, kw_only=True):
    """Where an agent is, and how it is spoken to; what is None is found out. See `config.Upstream`."""

    url: str
    card: str | None = None
    card_keys: tuple[str, ...] = ()
    dialect: str | None = None
    binding: str | None = None
    origins: tuple[str, ...] = ()
    dedupes: bool | None = None
    double_base64: bool = False
    card_s: float = 300.0
    retry_wait_s: float = 5.0
    timeouts: Timeouts = Timeouts()
