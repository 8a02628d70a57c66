"""The address of an agent of another server, and the settings for calling it."""

from collections.abc import Callable

from msgspec import Struct

from dragoman.client import Timeouts
from dragoman.client.credentials import Credentials
from dragoman.net.egress import Egress

Made = Callable[[Egress], Credentials | None]
"""Creates the credentials, given the egress by which tokens are fetched."""


class Address(Struct, frozen=True, kw_only=True):
    """The address of an agent, and how to call it. A field that is None is discovered. See `config.Upstream`."""

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
