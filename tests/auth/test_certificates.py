"""Client certificates: whose word for them counts, and what of it is the name."""

import hashlib
import ssl
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.auth.certificates import Certificates
from dragoman.model.principal import AccessRole, Principal

DER = b"0\x82\x01\x0a not looked into"
PEM = ssl.DER_cert_to_PEM_cert(DER)
FINGERPRINT = "sha256:" + hashlib.sha256(DER).hexdigest()


def named(value: bytes, header: str = "X-Client-DN", peer: str | None = "10.0.0.1") -> str | None:
    certificates = Certificates(header, ["10.0.0.0/8", "fd00::/8"])
    principals = {certificates.principal({header.lower().encode(): value}, peer) for _ in range(2)}
    assert len(principals) == 1
    principal = principals.pop()
    if principal is None:
        return None
    assert principal == Principal(principal.id, AccessRole.CALLER)
    return principal.id.removeprefix("cert:")


@pytest.mark.parametrize("peer", ["10.0.0.1", "10.255.255.255", "fd00::1", "::ffff:10.0.0.1"])
def test_a_trusted_proxy_is_believed(peer: str) -> None:
    assert named(b"CN=alice,O=Example", peer=peer) == "CN=alice,O=Example"


@pytest.mark.parametrize(
    "peer", ["11.0.0.1", "::1", "fe80::1", "::ffff:11.0.0.1", "::10.0.0.1", "testclient", "", None]
)
def test_anybody_else_is_not(peer: str | None) -> None:
    assert named(b"CN=alice", peer=peer) is None


@pytest.mark.parametrize("value", [b"", b" ", b"-", b"(null)", b"a\0b", b"a\x1b[0m", b"C" * 1001, b"C" * 20_000])
def test_what_is_no_name_is_nobody(value: bytes) -> None:
    assert named(value) is None


def test_a_name_is_taken_as_it_is_and_not_decoded() -> None:
    assert named(b"CN=a%2CO=Admin") == "CN=a%2CO=Admin"
    assert named(rb"CN=a\,O=Admin,L=M\C3\BCnchen") == r"CN=a\,O=Admin,L=M\C3\BCnchen"
    assert named("CN=Łucja".encode()) == "CN=Łucja"
    assert named("CN=Jürgen".encode("latin-1")) == "CN=Jürgen"


def test_a_whole_certificate_is_named_by_its_fingerprint_however_it_is_escaped() -> None:
    for escaped in (quote(PEM), quote(PEM, safe="+/="), quote(PEM, safe=" +/=")):
        assert named(escaped.encode()) == FINGERPRINT
    assert named(b"-----BEGIN CERTIFICATE-----%zz") is None
    assert named(b"-----BEGIN%20CERTIFICATE-----\xff") is None


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ('By=spiffe://x/me;Hash=ab12;Subject="CN=alice,O=Example; Co";URI=spiffe://x/alice', "CN=alice,O=Example; Co"),
        ('Hash=ab12;Subject="";URI=spiffe://x/alice;URI=spiffe://x/bob', "spiffe://x/alice"),
        ("By=spiffe://x/me;Hash=ab12", "ab12"),
        (r'Subject="CN=\"quoted\",O=\\"', 'CN="quoted",O=\\'),
        ('Subject="CN=mallory",Hash=1;Subject="CN=alice"', "CN=alice"),
        ("Subject=CN=mallory,Hash=ab", "ab"),
        ('subject="CN=alice"', "CN=alice"),
        ("By=spiffe://x/me", None),
        ('Subject="CN=alice', None),
        ('Subject="CN=alice"x', None),
        ("alice", None),
        ("", None),
    ],
)
def test_of_envoys_header_the_last_element_names_the_certificate(value: str, name: str | None) -> None:
    assert named(value.encode(), "X-Forwarded-Client-Cert") == name


@given(st.binary(max_size=200))
def test_whatever_is_in_the_header_is_a_name_or_nobody(value: bytes) -> None:
    for header in ("x-client-dn", "x-forwarded-client-cert"):
        name = named(value, header)
        assert name is None or name.isprintable()


def test_what_is_remembered_is_bounded_and_untrusted_peers_take_no_room() -> None:
    certificates = Certificates("x-dn", ["10.0.0.0/8"])
    for number in range(5000):
        assert certificates.principal({b"x-dn": b"CN=%d" % number}, "10.0.0.1") is not None
        assert certificates.principal({b"x-dn": b"CN=%d" % number}, "11.0.0.1") is None
    assert certificates.principal({b"x-dn": b"CN=0"}, "10.0.0.1") == Principal("cert:CN=0")


def test_a_proxy_that_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError):
        Certificates("x-dn", ["proxy.example.org"])
