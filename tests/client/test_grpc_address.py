"""Addresses of gRPC endpoints as other makers write them, and which of them are called over TLS."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.card import interfaces
from dragoman.client.grpc_address import grpc_url
from dragoman.net.errors import BadUrl
from dragoman.net.target import grpc_target, is_grpc

PLAIN, SECURE = "http://host.example:8080/card.json", "https://host.example/card.json"


@pytest.mark.parametrize(
    ("given", "plain", "secure"),
    [
        ("host.example:50051", "grpc://host.example:50051", "grpcs://host.example:50051"),
        (" Host.Example:50051/ ", "grpc://host.example:50051", "grpcs://host.example:50051"),
        ("dns:///host.example:50051", "grpc://host.example:50051", "grpcs://host.example:50051"),
        ("dns:host.example:50051", "grpc://host.example:50051", "grpcs://host.example:50051"),
        ("10.0.0.1:50051", "grpc://10.0.0.1:50051", "grpcs://10.0.0.1:50051"),
        ("[::1]:50051", "grpc://[::1]:50051", "grpcs://[::1]:50051"),
        ("localhost:443", "grpcs://localhost:443", "grpcs://localhost:443"),
        ("host.example", "grpcs://host.example:443", "grpcs://host.example:443"),
        ("grpc://host.example:50051", "grpc://host.example:50051", "grpc://host.example:50051"),
        ("grpc://host.example:443", "grpc://host.example:443", "grpc://host.example:443"),
        ("http://host.example:50051/a2a?x=1", "grpc://host.example:50051", "grpc://host.example:50051"),
        ("grpcs://host.example:50051", "grpcs://host.example:50051", "grpcs://host.example:50051"),
        ("HTTPS://host.example", "grpcs://host.example:443", "grpcs://host.example:443"),
        ("", "", ""),
        ("unix:///run/agent.sock", "", ""),
        ("xds:///host.example", "", ""),
        ("host.example:0", "", ""),
        ("host.example:99999", "", ""),
        ("host.example:50051/path", "", ""),
        ("user:word@host.example:50051", "", ""),
        ("127.1:50051", "", ""),
        ("::1:50051", "", ""),
        (None, "", ""),
        (50051, "", ""),
    ],
)
def test_an_address_is_read_and_tls_follows_its_scheme_its_port_and_its_card(
    given: object, plain: str, secure: str
) -> None:
    assert grpc_url(given, PLAIN) == plain
    assert grpc_url(given, SECURE) == secure


def test_the_caller_decides_about_addresses_that_do_not_say_it() -> None:
    assert grpc_url("host.example:50051", PLAIN, True) == "grpcs://host.example:50051"
    assert grpc_url("host.example:443", SECURE, False) == "grpc://host.example:443"
    assert grpc_url("https://host.example", PLAIN, False) == "grpcs://host.example:443"
    assert grpc_url("grpc://host.example:1", SECURE, True) == "grpc://host.example:1"


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_none(text: str) -> None:
    url = grpc_url(text, PLAIN)
    assert url == "" or grpc_target(url).url == url


@pytest.mark.parametrize("url", ["grpc://host.example:1/x", "grpc://", "grpc://u:p@host.example:1", "ftp://host:1"])
def test_what_is_no_address_of_an_endpoint_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        grpc_target(url)
    assert is_grpc(url) is (not url.startswith("ftp"))


def listed(*entries: tuple[str, str]) -> dict[str, object]:
    return {
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": "1.0"} for url, binding in entries
        ]
    }


def chosen(card: dict[str, object], card_url: str) -> list[str]:
    return [each.url for each in interfaces(card, card_url, card_url)]


def test_an_endpoint_on_the_host_of_the_card_is_at_home_whatever_its_port() -> None:
    card = listed(("other.example:1", "GRPC"), ("host.example:2", "GRPC"), ("http://host.example:8080/rpc", "JSONRPC"))
    assert chosen(card, PLAIN) == ["grpc://host.example:2", "http://host.example:8080/rpc", "grpc://other.example:1"]


def test_an_endpoint_that_gives_up_tls_is_not_at_home() -> None:
    card = listed(("grpc://host.example:2", "GRPC"), ("https://host.example/rpc", "JSONRPC"))
    assert chosen(card, SECURE) == ["https://host.example/rpc", "grpc://host.example:2"]


def test_a_server_on_every_address_of_this_machine_is_called_where_its_card_was() -> None:
    card = listed(("0.0.0.0:50051", "GRPC"))
    assert chosen(card, "http://localhost:8080/card.json") == ["grpc://localhost:50051"]
    assert chosen(card, "http://[::1]:8080/card.json") == ["grpc://[::1]:50051"]
