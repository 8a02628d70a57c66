"""Addresses without a scheme, as every command reads them."""

import click
import pytest

from dragoman.cli.arguments import ServerUrl, with_scheme

ADDRESSES = [
    ("localhost:7870", "http://localhost:7870"),
    ("127.0.0.1", "http://127.0.0.1"),
    ("[::1]:7870/agents/echo", "http://[::1]:7870/agents/echo"),
    ("me.localhost", "http://me.localhost"),
    ("agents.example.org", "https://agents.example.org"),
    ("10.0.0.7:7870", "https://10.0.0.7:7870"),
    ("http://agents.example.org", "http://agents.example.org"),
    ("https://localhost:7870", "https://localhost:7870"),
]


@pytest.mark.parametrize(("address", "url"), ADDRESSES)
def test_an_address_without_a_scheme_is_https_or_http_on_this_machine(address: str, url: str) -> None:
    assert with_scheme(address) == url
    assert ServerUrl().convert(f" {address} ", None, None) == url


@pytest.mark.parametrize("address", ["", "localhost:0", "localhost:x", "ftp://localhost", "https://", "http://[::1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(click.BadParameter, match="must be an address such as localhost:7870"):
        ServerUrl().convert(address, None, None)
