"""The addresses that may be dialled, and the settings that decide otherwise."""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.net.address import Guard, fault
from dragoman.net.errors import AddressRefused, Unresolved
from dragoman.net.target import target

# IANA IPv4 Special-Purpose Address Registry, and multicast
NOT_GLOBAL = [
    IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
    )
]
inward = st.sampled_from(NOT_GLOBAL).flatmap(
    lambda network: st.integers(int(network[0]), int(network[-1])).map(IPv4Address)
)
outward = st.integers(0, 2**32 - 1).map(IPv4Address).filter(lambda a: not any(a in network for network in NOT_GLOBAL))

FORMS: dict[str, Callable[[int], int]] = {
    "mapped": lambda v4: 0xFFFF << 32 | v4,
    "compatible": lambda v4: v4,
    "translated": lambda v4: 0xFFFF << 48 | v4,
    "nat64": lambda v4: 0x0064FF9B << 96 | v4,
    "local nat64": lambda v4: 0x0064FF9B0001 << 80 | v4,
    "6to4": lambda v4: 0x2002 << 112 | v4 << 80 | 1,
    "teredo client": lambda v4: 0x20010000 << 96 | 0x4136E378 << 64 | (v4 ^ 0xFFFFFFFF),
    "teredo server": lambda v4: 0x20010000 << 96 | v4 << 64 | (0xC6290004 ^ 0xFFFFFFFF),
    "isatap": lambda v4: 0x20010500009F0000 << 64 | 0x5EFE << 32 | v4,
    "global isatap": lambda v4: 0x20010500009F0000 << 64 | 0x02005EFE << 32 | v4,
}
CARRIERS = ("mapped", "nat64", "6to4", "teredo client", "teredo server", "isatap", "global isatap")


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None)
@given(address=inward)
def test_an_ipv4_address_that_is_not_global_is_refused_plain_and_inside_ipv6(form: str, address: IPv4Address) -> None:
    assert fault(str(address))
    assert fault(str(IPv6Address(FORMS[form](int(address)))))


@pytest.mark.parametrize("form", CARRIERS)
@settings(deadline=None)
@given(address=outward)
def test_an_ipv4_address_that_is_global_may_be_dialled_plain_and_inside_ipv6(form: str, address: IPv4Address) -> None:
    if address == IPv4Address("168.63.129.16"):
        return
    assert fault(str(address)) is None
    assert fault(str(IPv6Address(FORMS[form](int(address))))) is None


@settings(deadline=None)
@given(st.integers(0, 2**128 - 1).filter(lambda bits: bits >> 125 != 1 and bits >> 32 not in (0xFFFF, 0x64FF9B << 64)))
def test_ipv6_beyond_global_unicast_is_refused(bits: int) -> None:
    assert fault(str(IPv6Address(bits)))


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("10.1.2.3", "a private address"),
        ("127.0.0.1", "a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("100.64.0.1", "a shared (carrier-grade NAT) address"),
        ("0.0.0.0", "the unspecified address"),
        ("224.0.0.1", "a multicast address"),
        ("255.255.255.255", "the broadcast address"),
        ("192.0.0.8", "a reserved address"),
        ("::1", "a loopback address"),
        ("::127.0.0.1", "an IPv4-compatible address"),
        ("fd00::1", "a private address"),
        ("fec0::1", "a site-local address"),
        ("fe80::1", "a link-local address"),
        ("ff02::1", "a multicast address"),
        ("::ffff:10.0.0.1", "a private address inside an IPv6 address"),
        ("64:ff9b::a00:1", "a private address inside an IPv6 address"),
        ("2002:7f00:1::", "a loopback address inside an IPv6 address"),
        ("64:ff9b:1::808:808", "a NAT64 address of local use"),
        ("::ffff:0:8.8.8.8", "a reserved address"),
        ("5f00::1", "a reserved address"),
    ],
)
def test_a_refusal_says_what_the_address_is(address: str, kind: str) -> None:
    assert fault(address) == kind


@pytest.mark.parametrize(
    "address", ["198.41.0.4", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.32.0.0", "192.0.1.0", "2001:500:9f::42"]
)
def test_addresses_on_the_open_internet_may_be_dialled(address: str) -> None:
    assert fault(address) is None


@pytest.mark.parametrize(
    "address",
    [
        *("", "localhost", "127.1", "8.8.8.08", "0x8.8.8.8", "134744072", "8.8.8.8 ", "٨.8.8.8", "8.8.8.8\0", "[::1]"),
        *("fe80::1%eth0", "2001:500:9f::42%eth0", "8.8.8.8/32", "2001:500:9f::４2"),
    ],
)
def test_what_is_not_a_plain_address_is_refused(address: str) -> None:
    assert fault(address) == "not a plain IP address"


def test_allowed_networks_let_exactly_their_addresses_through() -> None:
    guard = Guard(allowed_cidrs=["10.1.0.0/16", "fd00:1::/32"])
    let_through = ["10.1.0.0", "10.1.255.255", "::ffff:10.1.0.1", "64:ff9b::a01:1", "2002:a01:1::1", "fd00:1::1"]
    assert [address for address in let_through if guard(address)] == []
    refused = ["10.0.255.255", "10.2.0.0", "::ffff:10.2.0.1", "::10.1.0.1", "fd00:2::1", "127.0.0.1", "2002:a02:1::1"]
    assert [address for address in refused if not guard(address)] == []


def test_a_teredo_address_is_let_through_only_if_both_of_its_addresses_are() -> None:
    client_and_public_server = str(IPv6Address(FORMS["teredo client"](0x0A010001)))
    assert Guard(allowed_cidrs=["10.1.0.0/16"])(client_and_public_server) is None
    both = str(IPv6Address(0x20010000 << 96 | 0x0A020001 << 64 | (0x0A010001 ^ 0xFFFFFFFF)))
    assert Guard(allowed_cidrs=["10.1.0.0/16"])(both)


@pytest.mark.parametrize("network", ["::/0", "::ffff:0:0/96", "2002::/16"])
def test_an_ipv6_network_that_is_allowed_does_not_let_private_ipv4_through_inside_it(network: str) -> None:
    guard = Guard(allowed_cidrs=[network])
    for inner in ("::ffff:10.0.0.1", "2002:a00:1::", "64:ff9b::7f00:1"):
        assert guard(inner), inner
    assert Guard(allowed_cidrs=[network, "10.0.0.0/8"])("::ffff:10.0.0.1") is None
    assert Guard(allowed_cidrs=["::/0"])("fd00::1") is None


@pytest.mark.parametrize("host", ["workstacean", "WorkStacean", "workstacean.", "10.0.0.5", "fd00::5"])
def test_allowed_hosts_are_known_in_any_case_and_with_a_dot(host: str) -> None:
    assert Guard(allowed_hosts=["Workstacean.", "10.0.0.5", "fd00::5"]).named(host)


@pytest.mark.parametrize("host", ["workstacean.evil.example", "xworkstacean", "workstacean..", "", "10.0.0.50"])
def test_other_hosts_are_not_allowed_with_them(host: str) -> None:
    assert not Guard(allowed_hosts=["workstacean", "10.0.0.5"]).named(host)


class Answers:
    """A resolver of one answer."""

    def __init__(self, *addresses: str) -> None:
        self.known = addresses
        self.asked: list[str] = []

    async def addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if not self.known:
            raise Unresolved("does not exist, or has no address: check its name")
        return self.known


async def test_a_host_whose_addresses_are_all_public_passes() -> None:
    answers = Answers("198.41.0.4", "2001:500:9f::42")
    await Guard().check(target("https://example.org/"), answers)
    assert answers.asked == ["example.org"]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_address_that_is_not_public_is_enough_to_refuse_a_host(place: int) -> None:
    addresses = ["198.41.0.4", "2001:500:9f::42"]
    addresses.insert(place, "10.0.0.1")
    with pytest.raises(AddressRefused, match=r"example\.org resolves to a private address") as caught:
        await Guard().check(target("https://example.org/?key=secret"), Answers(*addresses))
    assert "10.0.0.1" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_host_without_an_address_is_refused() -> None:
    with pytest.raises(AddressRefused, match=r"example\.org does not exist"):
        await Guard().check(target("https://example.org/"), Answers())


async def test_an_address_in_place_of_a_host_is_checked_without_dns() -> None:
    answers = Answers()
    await Guard().check(target("https://198.41.0.4/"), answers)
    with pytest.raises(AddressRefused, match="a loopback address"):
        await Guard().check(target("https://[::1]/"), answers)
    assert answers.asked == []


async def test_dns_is_not_asked_about_a_host_that_the_operator_named() -> None:
    answers = Answers("10.0.0.1")
    guard = Guard(allowed_hosts=["workstacean"])
    await guard.check(target("http://WORKSTACEAN.:3000/hook"), answers)
    assert answers.asked == []
    with pytest.raises(AddressRefused):
        await guard.check(target("http://other/hook"), answers)


async def test_a_host_in_an_allowed_network_passes() -> None:
    await Guard(allowed_cidrs=["10.0.0.0/8"]).check(target("http://worker/hook"), Answers("10.0.0.1"))
