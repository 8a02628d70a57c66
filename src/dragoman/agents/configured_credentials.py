"""The credentials for a server elsewhere, as a table of the configuration describes them.

Invariant: the secret is that of the environment at the start; it is in no message and no representation.
"""

from msgspec import Struct

from dragoman.client import ApiKey, BearerToken, ClientCredentials
from dragoman.client.credentials import Credentials
from dragoman.config import UpstreamCredentials
from dragoman.net.egress import Egress


class ConfiguredCredentials(Struct, frozen=True):
    """Makes the credentials of the table `shown` with its `secret`."""

    shown: UpstreamCredentials
    secret: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r}, …)"

    def make(self, egress: Egress) -> Credentials:
        """Make them. A token is fetched by way of `egress`."""
        shown = self.shown
        if shown.token_url is not None and shown.client_id is not None:
            return ClientCredentials(
                shown.token_url,
                shown.client_id,
                self.secret,
                egress=egress,
                scope=shown.scope,
                audience=shown.audience,
                method=shown.method,
            )
        return BearerToken(self.secret) if shown.header is None else ApiKey(self.secret, shown.header)


def make_no_credentials(egress: Egress) -> None:
    """There are none."""
