"""URLs that strangers give: what is taken apart, and what is refused with a reason."""

from urllib.parse import urlsplit

import pytest
import yarl
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.net.errors import BadUrl
from dragoman.net.target import MAX_URL, Target, target
from tests.net.hostile import INWARD, ODD


@pytest.mark.parametrize("url", ODD)
def test_an_odd_url_is_refused_before_anybody_asks_where_it_leads(url: str) -> None:
    with pytest.raises(BadUrl):
        target(url.replace("PORT", "8080"))


@pytest.mark.parametrize("url", INWARD)
def test_a_plain_url_is_taken_wherever_it_leads(url: str) -> None:
    assert target(url.replace("PORT", "8080"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "https://example.org",
            Target("https://example.org/", "https", "example.org", 443, "https://example.org:443"),
        ),
        (
            "HTTP://Example.ORG:8080/A%20b//../c?D=%C3%A4&e",
            Target(
                "http://example.org:8080/A%20b//../c?D=%C3%A4&e",
                "http",
                "example.org",
                8080,
                "http://example.org:8080",
            ),
        ),
        (
            "http://example.org?a@b",
            Target("http://example.org/?a@b", "http", "example.org", 80, "http://example.org:80"),
        ),
        (
            "http://svc.cluster.local.:80/x@y",
            Target("http://svc.cluster.local.:80/x@y", "http", "svc.cluster.local.", 80, "http://svc.cluster.local:80"),
        ),
        (
            "https://[2001:500:9F::42]:8443/",
            Target(
                "https://[2001:500:9f::42]:8443/", "https", "2001:500:9f::42", 8443, "https://[2001:500:9f::42]:8443"
            ),
        ),
        (
            "http://agent_1:9000/hook",
            Target("http://agent_1:9000/hook", "http", "agent_1", 9000, "http://agent_1:9000"),
        ),
        (
            "https://xn--bcher-kva.example/",
            Target(
                "https://xn--bcher-kva.example/",
                "https",
                "xn--bcher-kva.example",
                443,
                "https://xn--bcher-kva.example:443",
            ),
        ),
        (
            "http://198.41.0.4/",
            Target("http://198.41.0.4/", "http", "198.41.0.4", 80, "http://198.41.0.4:80"),
        ),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: Target) -> None:
    assert target(url) == expected


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.1/", "write it plainly"),
        ("http://me:secret@example.org/", "user or password"),
        ("http://bücher.example/", "punycode"),
        ("http://[0:0::1]/", r"write its IPv6 address as \[::1\]"),
        ("http://example.org:0/", "1 to 65535"),
        ("http://example.org/#top", "fragment"),
        ("http://example.org/" + "a" * MAX_URL, "longer than 2048"),
        ("ftp://example.org/", "use http://"),
    ],
)
def test_a_refusal_says_what_to_change(url: str, told: str) -> None:
    with pytest.raises(BadUrl, match=told):
        target(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:secret@example.org/",
        "http://me:p@secret@example.org/",
        "http:\\\\me:secret@example.org/",
        "me:secret@example.org",
        "http://example.org/?key=secret#x",
        "ftp://secret@example.org/?secret",
    ],
)
def test_a_refusal_tells_no_secret(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        target(url)
    assert "secret" not in str(caught.value)


def test_a_url_is_shown_without_its_query() -> None:
    assert target("https://example.org/hook?token=secret").shown == "https://example.org/hook"


PIECES = (
    *("http://", "https://", "/", "//", ":", "@", "?", "#", "\\", "%", "%25", "[", "]", "::1", ".", "..", "-", "0x7f"),
    *("127.0.0.1", "localhost", "example.org", "80", "65536", "0", "a", "A", "é", "１"),
)
pieces = st.lists(st.sampled_from([*PIECES, " ", "\t", ""]), max_size=9).map("".join)


@settings(deadline=None)
@given(st.sampled_from(["", "http://", "http://example.org"]), pieces)
def test_what_is_taken_reads_the_same_to_other_parsers(beginning: str, rest: str) -> None:
    try:
        taken = target(beginning + rest)
    except BadUrl:
        return
    for read in (yarl.URL(taken.url, encoded=True), yarl.URL(taken.url)):
        assert (read.scheme, read.raw_host, read.port, read.raw_user) == (taken.scheme, taken.host, taken.port, None)
    split = urlsplit(taken.url)
    assert (split.scheme, split.hostname, split.username, split.fragment) == (taken.scheme, taken.host, None, "")
    assert (split.port or {"http": 80, "https": 443}[split.scheme]) == taken.port
    assert str(yarl.URL(taken.url, encoded=True)) == taken.url
    assert target(taken.url) == taken


@settings(deadline=None)
@given(st.text(max_size=40))
def test_a_url_is_taken_or_refused_and_nothing_else(url: str) -> None:
    for prefix in ("", "http://", "http://example.org"):
        try:
            target(prefix + url)
        except BadUrl:
            pass
