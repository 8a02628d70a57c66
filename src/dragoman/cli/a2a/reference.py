"""Agent card references: a host, an origin, a URL, a file, or an entry of a catalog become a card (a2a-cli §8.1).

Invariant: a card is fetched without credentials. A card from a file has no origin of its own: its user vouches for the
endpoints that it names. A card that a catalog names is as untrusted as any other.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
from msgspec import Struct

from dragoman.cli.a2a.failures import Failure
from dragoman.cli.arguments import is_loopback, with_scheme
from dragoman.cli.endings import Code
from dragoman.client import FoundCard, find_card
from dragoman.client.discovery import is_card, places
from dragoman.client.errors import CallBroken, NoCard
from dragoman.client.grpc_address import grpc_url
from dragoman.net.egress import Egress
from dragoman.net.errors import CertificateWanted, EgressError
from dragoman.net.target import is_grpc

CARD_TYPE = "application/a2a-agent-card+json"
"""The media type of entries of an AI Catalog that are agent cards."""

CARD_BYTES_MAX = 8 * 1024 * 1024

ENTRIES_SHOWN = 10

FETCH_TIMEOUT_S = 10.0


class ResolvedCard(Struct, frozen=True, kw_only=True):
    """A card and its origin. `url` is where it came from; a file that names no endpoint relatively needs none.

    `vouched` means that the user has the card as a file, and so vouches for its endpoints. `at_root`: the reference
    names a host and no agent of it.
    """

    found: FoundCard
    place: str
    vouched: bool = False
    at_root: bool = False


class Reference(Struct, frozen=True):
    """A parsed reference: a file or a URL. `entry` names an entry of a catalog, empty for none."""

    place: Path | str
    entry: str = ""


def parse_reference(text: str) -> Reference:
    """Parse a reference: a file, or a URL, also of gRPC. Raises Failure for one that can be neither."""
    text = text.strip()
    if not text:
        raise Failure(Code.USAGE, "--agent-card is empty", hint="name a host, a URL or a file")
    if text.startswith("file://"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise Failure(Code.USAGE, f"{text} names another machine", hint="use file:///path")
        return Reference(Path(unquote(parts.path)), unquote(parts.fragment))
    if "://" in text:
        parts = urlsplit(text)
        if not (parts.scheme in ("http", "https") or is_grpc(text)) or not parts.netloc:
            hint = "use https://, http://, a file, or grpcs:// and grpc:// without a card"
            raise Failure(Code.USAGE, f"{text} is no URL of an agent", hint=hint)
        return Reference(parts._replace(fragment="").geturl(), unquote(parts.fragment))
    plain, _, entry = text.partition("#")
    path = Path(plain).expanduser()
    if path.is_file() or plain.startswith((".", "/", "~")):
        return Reference(path, entry)
    return Reference(with_scheme(plain), entry)


def origin_of(reference: str) -> str:
    """Return the origin that a reference names, in lower case; empty for a file. Raises Failure."""
    place = parse_reference(reference).place
    return "" if isinstance(place, Path) else _origin(place)


async def resolve_card(text: str, *, egress: Egress, headers: Mapping[str, str]) -> ResolvedCard:
    """Find the card that a reference names. Raises Failure, also for an address of gRPC; NotReached or CallTimedOut."""
    reference = parse_reference(text)
    if is_grpc(text.strip()):
        hint = "give the http or https address of the agent, where its card is"
        raise Failure(Code.USAGE, f"{text} serves gRPC, and no card", hint=hint)
    if isinstance(reference.place, Path):
        document, place = _read_file(reference.place), reference.place.resolve().as_uri()
        if is_card(document):
            return ResolvedCard(found=FoundCard(document, _first_url(document, place)), place=place, vouched=True)
    else:
        try:
            found = await find_card(reference.place, egress=egress, headers=headers)
        except (NoCard, CallBroken) as error:
            document = await _fetch_json(reference.place, egress)
            place = reference.place
            if document is None:
                if isinstance(error, NoCard) and await _speaks_tls(error, egress):
                    host = _origin(place).removeprefix("http://")
                    hint = f"give --agent-card {place.replace('http', 'https', 1)}"
                    raise Failure(Code.UNREACHABLE, f"{host} speaks TLS: use https://", hint=hint) from error
                raise (_malformed(error) or error) from error
            if is_card(document):
                return ResolvedCard(found=FoundCard(document, place), place=place)
        else:
            if is_card(found.card):
                return ResolvedCard(found=found, place=found.url, at_root=places(reference.place).names_host)
            document, place = found.card, found.url
    entries = list(catalog_entries(document))
    if not entries:
        raise Failure(
            Code.CARD_INVALID,
            f"{text} has neither an agent card nor a catalog of agents",
            hint="give the URL or the file of an agent card",
        )
    return await _resolve_entry(_choose_entry(entries, reference.entry, text), place, egress, headers)


class CatalogEntry(Struct, frozen=True):
    """An agent in a catalog: its names, and its card or the URL of its card."""

    names: tuple[str, ...]
    card: Any
    url: str


def catalog_entries(document: Any) -> Iterator[CatalogEntry]:
    """Yield the agents of a catalog.

    Catalogs differ: AI Catalog has `entries` of several kinds, AI Card `agents` with a `cardUrl`, and registries plain
    lists. A single entry is a catalog of one.
    """
    match document:
        case list():
            for each in document:
                yield from catalog_entries(each)
        case {"entries": list(entries)} | {"agents": list(entries)} | {"items": list(entries)}:
            for each in entries:
                yield from catalog_entries(each)
        case dict():
            kind = document.get("type") or document.get("mediaType") or CARD_TYPE
            if kind != CARD_TYPE:
                return
            names = tuple(
                value
                for key in ("identifier", "id", "name", "displayName")
                if isinstance(value := document.get(key), str)
            )
            for key in ("data", "inline", "agentCard", "card"):
                if is_card(document.get(key)):
                    yield CatalogEntry(names or (document[key]["name"],), document[key], "")
                    return
            for key in ("cardUrl", "agentCardUrl", "card_url", "url"):
                if isinstance(url := document.get(key), str) and url:
                    yield CatalogEntry(names or (url,), None, url)
                    return


def _choose_entry(entries: list[CatalogEntry], wanted: str, text: str) -> CatalogEntry:
    if not wanted and len(entries) == 1:
        return entries[0]
    chosen = [entry for entry in entries if wanted in entry.names]
    if wanted and chosen:
        return chosen[0]
    names = ", ".join(entry.names[0] for entry in entries[:ENTRIES_SHOWN])
    more = f" and {len(entries) - ENTRIES_SHOWN} more" if len(entries) > ENTRIES_SHOWN else ""
    raise Failure(
        Code.CARD_NOT_FOUND,
        f"the catalog has {'no entry ' + repr(wanted) if wanted else 'several agents'}: {names}{more}",
        hint=f"choose one with {text.partition('#')[0]}#NAME",
    )


async def _resolve_entry(entry: CatalogEntry, place: str, egress: Egress, headers: Mapping[str, str]) -> ResolvedCard:
    if entry.card is not None:
        url = _first_url(entry.card, place) if place.startswith("file:") else place
        return ResolvedCard(found=FoundCard(entry.card, url), place=place)
    url = urljoin(place, entry.url)
    if urlsplit(url).scheme not in ("http", "https"):
        raise Failure(Code.CARD_INVALID, f"the catalog names the card {url}", hint="a card has an http or https URL")
    found = await find_card(url, egress=egress, headers=headers)
    if not is_card(found.card):
        raise Failure(Code.CARD_INVALID, f"{url}, which the catalog names, is no agent card")
    return ResolvedCard(found=found, place=found.url)


async def _fetch_json(url: str, egress: Egress) -> Any:
    """Fetch a document that may be a catalog; None if it is no JSON."""
    try:
        reply = await egress.request("GET", url, timeout_s=FETCH_TIMEOUT_S, headers={"Accept": "application/json"})
        return msgspec.json.decode(reply.body) if reply.ok else None
    except (EgressError, ValueError, RecursionError):
        return None


async def _speaks_tls(error: NoCard, egress: Egress) -> bool:
    """Whether the server takes http:// for a mistake, and a TLS connection instead."""
    at = error.tried[0].url if error.tried else ""
    mistaken = all(tried.answer.startswith(("HTTP status 400", "the connection broke")) for tried in error.tried)
    if not at.startswith("http://") or not mistaken:
        return False
    try:
        await egress.reach(at.replace("http", "https", 1), timeout_s=FETCH_TIMEOUT_S)
    except EgressError as refused:
        return isinstance(refused, CertificateWanted) or isinstance(refused.__cause__, SSLCertVerificationError)
    return True


def _malformed(error: Exception) -> Failure | None:
    """Return a failure that says that something was served in the place of a card, None if nothing was."""
    if not isinstance(error, NoCard):
        return None
    served = next((tried for tried in error.tried if tried.answer.startswith("expected")), None)
    if served is None:
        return None
    return Failure(Code.CARD_INVALID, f"{served.url}: {served.answer}", hint="this URL serves no agent card")


def _first_url(card: dict[str, Any], place: str) -> str:
    """Return the URL of the first endpoint that a card from a file names, one over HTTP before any over gRPC.

    Raises Failure if there is none.
    """
    listed = card.get("supportedInterfaces")
    urls = [each.get("url") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    named = [url for url in (*urls, card.get("url")) if isinstance(url, str)]
    for url in named:
        if urlsplit(url).scheme in ("http", "https"):
            return url
    for url in named:  # gRPC names a host and a port, or one with a scheme of its own
        tls = not is_loopback(url.removeprefix("dns:").lstrip("/"))
        if address := grpc_url(url, "", tls):
            return f"http{address.removeprefix('grpc')}"
    raise Failure(Code.CARD_INVALID, f"{place} names no endpoint", hint="a card has supportedInterfaces with a url")


def _read_file(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(CARD_BYTES_MAX + 1)
    except OSError as error:
        raise Failure(
            Code.CARD_NOT_FOUND, f"{path}: {error.strerror}", hint="name a file that holds an agent card"
        ) from error
    try:
        if len(content) > CARD_BYTES_MAX:
            raise ValueError("it is larger than 8 MB")
        return msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise Failure(
            Code.CARD_INVALID, f"{path} is no JSON: {error}", hint="name a file with an agent card"
        ) from error


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()
