"""Trusted proxies: which address is the client's."""

import pytest

from dragoman.auth.proxies import TrustedProxies

PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("fd00::1", True), ("192.0.2.1", False), ("", False), ("x", False)],
)
def test_only_the_named_networks_are_trusted(peer: str, trusted: bool) -> None:
    assert [PROXIES.trusts(peer) for _ in range(2)] == [trusted, trusted]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ([b"192.0.2.1"], "192.0.2.1"),
        ([b"198.51.100.9, 192.0.2.1"], "192.0.2.1"),  # the client's own word comes first
        ([b"192.0.2.1, 10.0.0.7"], "192.0.2.1"),
        ([b"198.51.100.9", b"192.0.2.1,10.0.0.7", b" 10.0.0.8 "], "192.0.2.1"),
        ([b"10.0.0.9, 10.0.0.7"], "10.0.0.9"),
        ([b"192.0.2.1:4711"], "192.0.2.1"),
        ([b"[2001:db8::1]:4711"], "2001:db8::1"),
        ([b"2001:DB8::1"], "2001:db8::1"),
        ([b"::ffff:192.0.2.1"], "192.0.2.1"),
        ([b"unknown, 10.0.0.7"], "10.0.0.7"),
        ([b"192.0.2.1, unknown"], None),
        ([b"fe80::1%evil text"], None),
        ([b"fd00::1%eth0, 10.0.0.7"], "10.0.0.7"),
        ([b"\xff"], None),
        ([b""], None),
        ([b"192.0.2.1" + b", 10.0.0.7" * 100], "10.0.0.7"),
        ([b"192.0.2.1" + b", 10.0.0.7" * 31], "192.0.2.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(forwarded: list[bytes], client: str | None) -> None:
    assert PROXIES.client(forwarded) == client


def test_a_network_must_be_one() -> None:
    with pytest.raises(ValueError, match=r"proxy\.example\.org"):
        TrustedProxies(["proxy.example.org"])
