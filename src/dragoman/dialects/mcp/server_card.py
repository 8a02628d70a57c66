"""The MCP Server Card (SEP-2127): what a client has to know before it connects.

Followed is the schema `v1` of the repository modelcontextprotocol/experimental-ext-server-card, as of July 2026.

Invariant: a pure function. The card says what the server itself says once a client has connected.
"""

from msgspec import Struct, field

from dragoman.dialects.mcp import names

SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"

NAME, TITLE = "dragoman", "Dragoman"
"""The name of the server, as in `serverInfo`."""

LOCAL = "localhost"
"""The namespace of a server without a domain."""


class CardInput(Struct, frozen=True, kw_only=True, rename="camel"):
    """A value that the client's user has to give."""

    description: str
    is_required: bool = True
    is_secret: bool = True


class CardHeader(Struct, frozen=True, kw_only=True, rename="camel"):
    """A header that the client has to send."""

    name: str
    value: str
    variables: dict[str, CardInput]
    is_required: bool = True
    is_secret: bool = True


class CardRemote(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An endpoint of the server."""

    kind: str = field(name="type")
    url: str
    supported_protocol_versions: tuple[str, ...]
    headers: tuple[CardHeader, ...] = ()


class ServerCard(Struct, frozen=True, kw_only=True, rename="camel"):
    """An MCP server, before anybody has connected to it."""

    schema: str = field(name="$schema", default=SCHEMA)
    name: str
    title: str
    version: str
    description: str
    remotes: tuple[CardRemote, ...]


BEARER = CardHeader(
    name="Authorization",
    value="Bearer {key}",
    variables={"key": CardInput(description="A key of this server, or a token that it accepts.")},
)


def make_server_card(domain: str | None, url: str, version: str, *, asks: bool) -> ServerCard:
    """The card of the server whose endpoint is at `url`. `version` is that of this program; `asks`: callers need a key.

    The name begins with the domain in reverse order.
    """
    namespace = LOCAL if domain is None else ".".join(reversed(domain.split(".")))
    remote = CardRemote(
        kind="streamable-http",
        url=url,
        supported_protocol_versions=names.SPOKEN,
        headers=(BEARER,) if asks else (),
    )
    return ServerCard(
        name=f"{namespace}/{NAME}",
        title=TITLE,
        version=version,
        description="The skills of this server's agents, as tools.",
        remotes=(remote,),
    )
