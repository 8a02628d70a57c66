"""Finding cards: where is looked, what is kept, and what is told when there is none."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from dragoman.client.credentials import ApiKey
from dragoman.client.discovery import CardCache, Discovery, places
from dragoman.client.errors import CallTimedOut, NoCard, NotReached
from dragoman.client.retries import Retrier, Retries, Timeouts
from dragoman.client.transport import CallTerms
from dragoman.net.egress import Egress
from dragoman.net.errors import BadUrl
from tests.net.peer import Asked, Peer, Script, hangs, nobody, says, status

CARD = {"name": "a", "url": "http://127.0.0.1/"}
NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"


async def at_once(seconds: float) -> None:
    return None


def discovery(
    egress: Egress, url: str, cache: CardCache | None = None, path: str | None = None, card_s: float = 5.0, **more: Any
) -> Discovery:
    again = Retrier(Retries(attempts=2), pause=at_once)
    terms = CallTerms(timeouts=Timeouts(card_s=card_s), retrier=again, **more)
    return Discovery(egress, places(url, path), cache or CardCache(), terms)


@pytest.mark.parametrize(
    ("url", "path", "base", "cards"),
    [
        ("http://h/", None, "http://h", [NEW, OLD]),
        ("http://h", None, "http://h", [NEW, OLD]),
        ("http://h/7", None, "http://h/7", ["/7", "/7" + NEW, "/7" + OLD, NEW + "?id=7"]),
        ("http://h/x/7/", None, "http://h/x/7", ["/x/7/", "/x/7" + NEW, "/x/7" + OLD, NEW + "?id=7"]),
        ("http://h/a2a", None, "http://h/a2a", ["/a2a", "/a2a" + NEW, "/a2a" + OLD, NEW + "?id=a2a", NEW, OLD]),
        ("http://h/?id=7", None, "http://h/7", ["/7", "/7" + NEW, "/7" + OLD, NEW + "?id=7"]),
        ("http://h?x=y", None, "http://h", [NEW, OLD]),
        ("http://h/7" + OLD, None, "http://h/7", ["/7" + OLD]),
        ("http://h" + NEW + "?id=7", None, "http://h/7", [NEW + "?id=7"]),
        ("http://h/cards/mine.json", None, "http://h/cards", ["/cards/mine.json"]),
        ("http://h/7", "card", "http://h/7", ["/7/card", "/card"]),
        ("http://h/", "/card", "http://h", ["/card"]),
    ],
)
def test_where_is_looked(url: str, path: str | None, base: str, cards: list[str]) -> None:
    where = places(url, path)
    assert (where.base, [card.removeprefix("http://h") for card in where.cards]) == (base, cards)


def test_a_card_at_a_url_of_its_own() -> None:
    assert places("http://h/7", "https://cards.example/7").cards == ("https://cards.example/7",)


@pytest.mark.parametrize("url", ["ftp://h/", "h", "http://user:secret@h/", "http://h/#x", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        places(url)


@pytest.mark.parametrize("at", ["/x/7", "/x/7" + NEW, "/x/7" + OLD])
async def test_a_card_at_the_url_or_below_it_is_the_agents_own(peer: Peer, egress: Egress, at: str) -> None:
    peer.scripts[f"GET {at}"] = says(CARD)
    found = await discovery(egress, peer.url + "/x/7").find()
    assert (found.card, found.url) == (CARD, peer.url + at)


@pytest.mark.parametrize(
    ("url", "path", "at"),
    [
        ("/x/7", None, f"{NEW}?id=7"),
        ("/a2a", None, NEW),
        ("/a2a", None, OLD),
        ("/agents/7", NEW, NEW),
        ("/agents/7/", "card", "/card"),
    ],
)
async def test_a_card_elsewhere_on_the_host_must_name_the_url(
    peer: Peer, egress: Egress, url: str, path: str | None, at: str
) -> None:
    other = {"name": "a", "url": f"{peer.url}/", "protocolVersion": "0.3.0"}
    peer.scripts[f"GET {at}"] = says(other)
    with pytest.raises(NoCard, match=f"is the card of another agent, at {peer.url}/"):
        await discovery(egress, peer.url + url, path=path).find()
    own = {**other, "additionalInterfaces": [{"url": f"https://proxy.example{url}", "transport": "JSONRPC"}]}
    peer.scripts[f"GET {at}"] = says(own)
    assert (await discovery(egress, peer.url + url, path=path).find()).card == own


async def test_a_document_at_the_url_that_is_no_card_is_passed_over(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /7"] = says({"name": "billing", "status": "up"})
    with pytest.raises(NoCard, match="is no agent card: name, status"):
        await discovery(egress, peer.url + "/7").find()
    peer.scripts[f"GET /7{NEW}"] = says(CARD)
    assert (await discovery(egress, peer.url + "/7").find()).url == f"{peer.url}/7{NEW}"


async def test_an_endpoint_that_streams_to_readers_has_its_card_below_it(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /7"] = hangs(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n")
    peer.scripts[f"GET /7{NEW}"] = says(CARD)
    assert (await discovery(egress, peer.url + "/7", card_s=1.0).find()).url == f"{peer.url}/7{NEW}"


async def test_a_card_that_is_wrapped_is_read(peer: Peer, egress: Egress) -> None:
    peer.scripts[f"GET {NEW}"] = says({"success": True, "data": CARD, "meta": {}})
    assert (await discovery(egress, peer.url).find()).card == CARD


async def test_when_there_is_none_all_that_was_tried_is_told(peer: Peer, egress: Egress) -> None:
    peer.scripts[f"GET /7{NEW}"] = says(b"<html>hello")
    peer.scripts[f"GET /7{OLD}"] = says(b"", 302, {"Location": "/login"})
    peer.scripts[f"GET {NEW}?id=7"] = says({"detail": "no"})
    with pytest.raises(NoCard) as caught:
        await discovery(egress, peer.url + "/7").find()
    told = str(caught.value)
    assert [each.url for each in caught.value.tried] == [
        f"{peer.url}/7",
        f"{peer.url}/7{NEW}",
        f"{peer.url}/7{OLD}",
        f"{peer.url}{NEW}?id=7",
    ]
    assert "<html>hello" in told
    assert "HTTP status 302, redirects to /login" in told
    assert '{"detail": "no"}' in told


async def test_a_server_that_is_not_there_is_asked_for_one_card_only(egress: Egress) -> None:
    with pytest.raises(NotReached) as caught:
        await discovery(egress, await nobody() + "/7").find()
    assert not caught.value.sent


async def test_a_server_that_does_not_answer_is_named_with_the_timeout(peer: Peer, egress: Egress) -> None:
    peer.scripts[f"GET {NEW}"] = hangs()
    with pytest.raises(CallTimedOut, match=r"\(card_s\)") as caught:
        await discovery(egress, peer.url, card_s=0.3).find()
    assert caught.value.timeout == "card_s"
    assert len(peer.asked) == 1


async def test_a_server_that_is_busy_is_asked_again(peer: Peer, egress: Egress) -> None:
    answers = [says(b"", 503), says(CARD)]

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await answers.pop(0)(asked, writer)

    peer.scripts[f"GET {NEW}"] = script
    assert (await discovery(egress, peer.url).find()).card == CARD


def caching(headers: Mapping[str, str]) -> Script:
    """A card with these headers; 304 to who has it."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        known = "etag" in headers and asked.headers.get("if-none-match") == headers["etag"]
        await (says(b"", 304, headers) if known else says(CARD, headers=headers))(asked, writer)

    return script


async def test_a_fresh_card_is_not_asked_for_again(peer: Peer, egress: Egress) -> None:
    now = [0.0]
    cache = CardCache(clock=lambda: now[0])
    peer.scripts[f"GET {NEW}"] = caching({"Cache-Control": "public, max-age=60", "Age": "10"})
    for at, asked in ((0.0, 1), (49.0, 1), (51.0, 2)):
        now[0] = at
        assert (await discovery(egress, peer.url, cache).find()).card == CARD
        assert len(peer.asked) == asked
    await discovery(egress, peer.url, cache).find(anew=True)
    assert len(peer.asked) == 3


async def test_a_stale_card_is_asked_about_by_its_etag(peer: Peer, egress: Egress) -> None:
    cache = CardCache()
    peer.scripts[f"GET {NEW}"] = caching({"etag": '"1"'})
    for _ in range(3):
        assert (await discovery(egress, peer.url, cache).find()).card == CARD
    assert [asked.headers.get("if-none-match") for asked in peer.asked] == [None, '"1"', '"1"']


@pytest.mark.parametrize("control", ["no-store, max-age=60", "no-store"])
async def test_what_must_not_be_stored_is_not(peer: Peer, egress: Egress, control: str) -> None:
    cache = CardCache()
    peer.scripts[f"GET {NEW}"] = caching({"etag": '"1"', "Cache-Control": control})
    for _ in range(2):
        await discovery(egress, peer.url, cache).find()
    assert [asked.headers.get("if-none-match") for asked in peer.asked] == [None, None]


async def test_what_came_to_one_caller_is_not_given_to_another(peer: Peer, egress: Egress) -> None:
    cache = CardCache()
    peer.scripts[f"GET {NEW}"] = caching({"Cache-Control": "max-age=60"})
    for credentials in (None, ApiKey("one"), ApiKey("two"), ApiKey("one")):
        await discovery(egress, peer.url, cache, credentials=credentials).find()
    assert len(peer.asked) == 3


async def test_of_many_at_once_one_asks(peer: Peer, egress: Egress) -> None:
    cache = CardCache()
    peer.scripts[f"GET {NEW}"] = says(CARD)
    found = await asyncio.gather(*(discovery(egress, peer.url, cache).find() for _ in range(20)))
    assert len(found) == 20
    assert len(peer.asked) == 1


async def test_who_waits_asks_when_the_one_that_asked_leaves(peer: Peer, egress: Egress) -> None:
    cache = CardCache()
    answers: list[Script] = [hangs(), says(CARD)]

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await answers.pop(0)(asked, writer)

    peer.scripts[f"GET {NEW}"] = script
    first = asyncio.create_task(discovery(egress, peer.url, cache).find())
    await peer.came.wait()
    second = asyncio.create_task(discovery(egress, peer.url, cache).find())
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).card == CARD
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_the_cache_is_bounded(peer: Peer, egress: Egress) -> None:
    cache = CardCache(cards_max=2)
    for name in ("1", "2", "3", "1"):
        peer.scripts[f"GET /{name}{NEW}"] = caching({"Cache-Control": "max-age=60"})
        await discovery(egress, f"{peer.url}/{name}", cache).find()
    assert len([asked for asked in peer.asked if asked.path.endswith(NEW)]) == 4


async def test_a_missing_card_is_not_a_card(peer: Peer, egress: Egress) -> None:
    peer.scripts[f"GET {NEW}"] = status(404)
    with pytest.raises(NoCard, match="HTTP status 404"):
        await discovery(egress, peer.url).find()
