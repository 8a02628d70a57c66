"""Certificates for tests: an authority, and what it issues, as files in a folder."""

import ipaddress
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from msgspec import Struct

HOSTS = ("localhost", "127.0.0.1", "::1")
SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
"""What the key of an authority is for: certificates, and lists of revoked ones."""


class Issued(Struct, frozen=True):
    """A certificate and its key, as files."""

    cert: Path
    key: Path
    serial: int


class Authority:
    """An authority whose certificate is the file `path`."""

    def __init__(self, folder: Path, name: str = "authority", *, days: int = 10) -> None:
        self.path = folder / f"{name}.pem"
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        public = self._key.public_key()
        # With what RFC 5280 §4.2.1 asks of an authority: Python 3.13 verifies by it (`VERIFY_X509_STRICT`).
        builder = (
            _builder(self._name, self._name, self._key, days)
            .add_extension(constraints, critical=True)
            .add_extension(SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
        self.path.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str = "server",
        *,
        days: int = 5,
        password: bytes | None = None,
        rsa_bits: int = 0,
        hosts: Sequence[str] = HOSTS,
    ) -> Issued:
        """Issue a certificate for these names and addresses, this machine's unless they are given.

        With `days` below zero it has expired. A renewal with the same name replaces the files. The key is on a curve,
        unless it has `rsa_bits`.
        """
        key: CertificateIssuerPrivateKeyTypes = ec.generate_private_key(ec.SECP256R1())
        if rsa_bits:
            key = rsa.generate_private_key(65_537, rsa_bits)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key, days)
        names = [_named(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.add_extension(self._identifier, critical=False).sign(self._key, SHA256())
        sealed: KeySerializationEncryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key", certificate.serial_number)
        issued.cert.write_bytes(certificate.public_bytes(Encoding.PEM))
        issued.key.touch(0o600)
        issued.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed))
        return issued

    def server(self, *hosts: str, days: int = 1) -> ssl.SSLContext:
        """The context of a server of these names and addresses. Its certificate and key are in `{hosts[0]}.pem`."""
        issued = self.issue(hosts[0], days=days, hosts=hosts)
        issued.cert.write_bytes(issued.key.read_bytes() + issued.cert.read_bytes())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.cert)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context

    def revoke(self, *issued: Issued, days: int = 5, name: str = "revoked") -> Path:
        """Write a list of revoked certificates, which is outdated after so many days."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(self._name, now - timedelta(days=2), now + timedelta(days=days))
        for each in issued:
            revoked = x509.RevokedCertificateBuilder(each.serial, now - timedelta(days=1)).build()
            builder = builder.add_revoked_certificate(revoked)
        path = self._folder / f"{name}.crl"
        path.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        return path

    def client_context(self, shown: Issued | None = None) -> ssl.SSLContext:
        """How a client connects that trusts this authority, and shows a certificate."""
        context = ssl.create_default_context(cafile=str(self.path))
        if shown is not None:
            context.load_cert_chain(shown.cert, shown.key)
        return context


def _named(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() or ":" in host else x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: CertificateIssuerPrivateKeyTypes, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begins = now - timedelta(days=10)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + timedelta(days=days))
    )
