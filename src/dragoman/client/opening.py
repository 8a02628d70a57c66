"""`connect`: opens a connection to the agent at a URL.

Invariant: everything opened here is closed when the block ends; nothing that the caller owns is.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dragoman.client.card_cache import CardCache
from dragoman.client.choice import Choice, Doors
from dragoman.client.connection import Connection
from dragoman.client.credentials import Credentials, check_credentials
from dragoman.client.discovery import Discovery, Places, places
from dragoman.client.interface import Interface, binding_of
from dragoman.client.retries import RETRIES, Again, Retries
from dragoman.client.timeouts import TIMEOUTS, Timeouts
from dragoman.client.tongues import double_base64 as in_double_base64
from dragoman.client.tongues import tongue
from dragoman.client.transport import Transport
from dragoman.dialects.cards import HTTP_JSON, JSONRPC
from dragoman.dialects.tongue import Tongue
from dragoman.model.card import VERSIONS
from dragoman.net.egress import Egress


@asynccontextmanager
async def connect(
    url: str,
    *,
    credentials: Credentials | None = None,
    keys: Mapping[str, Any] | None = None,
    path: str | None = None,
    version: str | None = None,
    binding: str | None = None,
    dialect: str | Tongue | None = None,
    timeouts: Timeouts = TIMEOUTS,
    retries: Retries | Again = RETRIES,
    egress: Egress | None = None,
    extensions: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    origins: Sequence[str] = (),
    cache: CardCache | None = None,
    double_base64: bool = False,
) -> AsyncGenerator[Connection, None]:
    """Connect to the agent at `url` until the block ends.

    The card is looked for at `path`, or at the usual places, and says which dialect to use. `version` (`1.0`, `0.3`)
    and `binding` (`JSONRPC`, `HTTP+JSON`) choose among the endpoints that it offers. With a `dialect` (a name of
    `dialects.systems.DIALECTS`) that dialect is used at the URL, and no card is fetched. `keys` is a JWK Set; one of
    its keys must have signed the card. `double_base64` says that the agent encodes the bytes of files in base64 twice,
    as servers of the official Python SDK do in 0.3 over HTTP+JSON; it changes nothing elsewhere.

    `credentials` and `headers` go to the origin of `url` and to `origins`; only these may be dialled at any address.
    Without `egress` the connection opens its own. Several connections can share a `cache` of cards. Belongs to one
    event loop.

    Raises BadUrl; ValueError for an unknown name, or for a `version` beside a `dialect`; TypeError for credentials that
    are a plain text; NoCard, NoInterface, NotReached, CallTimedOut, NoToken, or CardNotVerified.
    """
    check_credentials(credentials)
    over = None if binding is None else binding_of(binding)
    if binding is not None and over is None:
        raise ValueError(f"binding {binding!r} is not known: use {JSONRPC} or {HTTP_JSON}")
    if version is not None and version not in VERSIONS:
        raise ValueError(f"version {version!r} is not known: use {' or '.join(VERSIONS)}")
    if version is not None and dialect is not None:
        raise ValueError("`version=` chooses from the card, and `dialect=` reads no card: pass only one of them")
    where = places(url, path)
    spoken = None if dialect is None else tongue(dialect)
    own = Egress(connect_timeout_s=timeouts.connect_s) if egress is None else egress
    doors = Doors(own, (url, *where.cards, *origins), credentials, timeouts)
    again = retries if isinstance(retries, Again) else Again(retries)
    given = dict(headers or {})

    def transport(interface: Interface) -> Transport:
        told = tongue(interface.dialect) if spoken is None else spoken
        if double_base64 and interface.binding == HTTP_JSON:
            told = in_double_base64(told)
        return Transport(
            doors.way(interface.url),
            interface,
            timeouts=timeouts,
            again=again,
            headers=given if doors.knows(interface.url) else {},
            extensions=extensions,
            spoken=told,
        )

    discovery = Discovery(
        doors.known,
        where,
        CardCache() if cache is None else cache,
        timeout_s=timeouts.card_s,
        headers=given,
        credentials=credentials,
        again=again,
    )
    fixed = None if spoken is None else _fixed(where, over, spoken)
    choice = Choice(discovery, where.base, made=transport, fixed=fixed, binding=over, version=version, keys=keys)
    try:
        await choice.begin()
        yield Connection(choice, again, timeouts, doors.reach)
    finally:
        await doors.close()
        if egress is None:
            await own.close()


def _fixed(where: Places, binding: str | None, spoken: Tongue) -> Interface:
    """Return the endpoint for a dialect that the caller named: the agent's URL as the caller wrote it."""
    over = binding or (HTTP_JSON if spoken.rpc is None else JSONRPC)
    url = where.base + "/" if spoken.slash and over == JSONRPC else where.given
    return Interface(url=url, binding=over, dialect=spoken.name)
