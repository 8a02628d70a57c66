"""The server's certificate, its key and the authorities of its clients: read from files, and again when they change.

Invariant: what is served has been read as a whole from files that fit together. Files that cannot be used change
nothing.
"""

import asyncio
import logging
import os
import ssl
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from msgspec import Struct

from dragoman.config import Config
from dragoman.server.errors import StartError

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the files are looked at. They are read when two looks in a row find them equal, since certificate and key
are renewed one after the other."""

DUE = 0.1
"""The part of a certificate's life that is left when a warning says that it has not been renewed. Tools that renew
them do so earlier: certbot when a third is left."""

READS_MAX = 5
"""How often files that change while they are read are read anew, before that is an error."""

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers of TLS 1.2: all have forward secrecy and authenticated encryption. Those of TLS 1.3 are all good."""

_CRL_BEGIN = b"-----BEGIN X509 CRL-----"

OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO

Stamp = tuple[int, int, int, int]
"""Tells whether a file has changed: its modification time and that of its inode in ns, its size, its inode."""


class TlsFiles(Struct, frozen=True):
    """The files, by their settings. Without `key` the key is in the file of the certificate."""

    cert: str
    key: str | None = None
    client_ca: str | None = None
    client_crl: str | None = None

    def stamps(self) -> tuple[Stamp | None, ...]:
        """The state of the files; None for one that is not there."""
        named = (self.cert, self.key, self.client_ca, self.client_crl)
        return tuple(_stamp(path) for path in named if path is not None)


class TlsIdentity(Struct, frozen=True):
    """The server's certificate, its key and its clients' authorities, as PEM and as a context for HTTPS.

    `client_ca` None asks no client for a certificate. `name` is that of the certificate, for the log. From `due` on its
    renewal is overdue. `stamps` tell the state of the files.
    """

    context: ssl.SSLContext
    chain: bytes
    key: bytes
    client_ca: bytes | None
    name: str
    due: datetime
    expires: datetime
    stamps: tuple[Stamp | None, ...]


class ServerTls:
    """The identity that the server has at present. `renewed` are called with each new one."""

    def __init__(self, files: TlsFiles, now: Callable[[], datetime]) -> None:
        """Read the files. Raises StartError."""
        self._files = files
        self._now = now
        self.identity = read_identity(files, now())
        self.renewed: list[Callable[[TlsIdentity], None]] = []
        self._told = 0
        """How many of the two moments, `due` and `expires`, the log has told."""
        self._seen = self._tried = self.identity.stamps
        self._asked = asyncio.Event()
        _warn_of_mode(files)

    async def run(self) -> None:
        """Look for new files for ever. An identity that cannot be used is reported once, and the old one is kept."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()
            await self._look()

    def request(self) -> None:
        """Read the files soon if they have changed, even if they have been at rest for a moment only."""
        self._asked.set()

    async def _look(self) -> None:
        """Look at the files once, and read them if they have changed and are at rest, or if that was asked for."""
        asked = self._asked.is_set()
        self._asked.clear()
        before, self._seen = self._seen, await asyncio.to_thread(self._files.stamps)
        if self._seen == self._tried or (self._seen != before and not asked):
            self._tell_expiry()
            return
        try:
            identity = await asyncio.to_thread(read_identity, self._files, self._now())
        except StartError as error:
            self._tried = self._seen
            until = self.identity.expires
            log.error("%s; the certificate of before stays in use (valid until %s)", error, _day(until))
            return
        self.identity, self._told, self._tried = identity, 0, self._seen
        log.info("new certificate of %s, valid until %s", identity.name, _day(identity.expires))
        _warn_of_mode(self._files)
        for renewed in self.renewed:
            renewed(identity)

    def _tell_expiry(self) -> None:
        now, identity = self._now(), self.identity
        if self._told < 2 and now > identity.expires:
            self._told = 2
            log.error("tls_cert '%s' has expired: clients refuse it: renew it", self._files.cert)
        elif self._told < 1 and now > identity.due:
            self._told = 1
            log.warning("tls_cert '%s' expires on %s: renew it", self._files.cert, _day(identity.expires))


def make_tls(config: Config, now: Callable[[], datetime]) -> ServerTls | None:
    """Read the files that the settings name; None if the server has no TLS. Raises StartError."""
    if config.tls_cert is None:
        for name in ("tls_key", "tls_client_ca", "tls_client_crl"):
            if getattr(config, name) is not None:
                raise StartError(f"{name} is set without tls_cert: set tls_cert, too, or leave {name} out")
        return None
    if config.tls_client_crl is not None and config.tls_client_ca is None:
        raise StartError("tls_client_crl is set without tls_client_ca: set tls_client_ca, too, or leave it out")
    if config.tls_client_crl is not None and config.grpc_port:
        # C-core checks revocation lists, but grpcio (1.85) has no way to give it any.
        raise StartError(
            "tls_client_crl and grpc_port: gRPC for Python cannot check revocation lists: leave out one of the two"
        )
    return ServerTls(TlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca, config.tls_client_crl), now)


def utc_now() -> datetime:
    """The time of this machine, which certificates are compared with."""
    return datetime.now(UTC)


def read_identity(files: TlsFiles, now: datetime) -> TlsIdentity:
    """Read the files and check that they fit together. This blocks. Raises StartError, with the file and the fix."""
    for _ in range(READS_MAX):
        stamps = files.stamps()
        try:
            identity = _read_once(files, now, stamps)
        except StartError:
            if files.stamps() == stamps:
                raise
            continue
        if files.stamps() == stamps:
            return identity
    raise StartError(
        f"tls_cert {files.cert!r}: the files change all the time: write them to another place and move them"
    )


def _read_once(files: TlsFiles, now: datetime, stamps: tuple[Stamp | None, ...]) -> TlsIdentity:
    chain = _read("tls_cert", files.cert)
    certificates = _certificates("tls_cert", files.cert, chain)
    leaf = certificates[0]
    _check_time("tls_cert", files.cert, leaf, now)
    key_at = ("tls_cert", files.cert) if files.key is None else ("tls_key", files.key)
    key = chain if files.key is None else _read(*key_at)
    _check_key(key_at, key, certificates, files.cert)
    context = _make_context()
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        why = (getattr(error, "reason", "") or str(error)).replace("_", " ").lower()
        fix = "make a new one with an RSA key of 2048 bits or more, or a key on the curve P-256"
        raise StartError(f"tls_cert {files.cert!r} cannot be used ({why}): {fix}") from error
    client_ca = None
    if files.client_ca is not None:
        client_ca = _read("tls_client_ca", files.client_ca)
        _check_authorities(files.client_ca, client_ca, now)
        context.load_verify_locations(cadata=client_ca.decode("ascii", "replace"))
        context.verify_mode = ssl.CERT_REQUIRED
        if files.client_crl is not None:
            _check_revocations(files.client_crl, client_ca, now)
            context.load_verify_locations(cafile=files.client_crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    begins, expires = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    due = expires - (expires - begins) * DUE
    return TlsIdentity(context, chain, key, client_ca, _name(leaf), due, expires, stamps)


def _make_context() -> ssl.SSLContext:
    """A context for HTTP/1.1 over TLS 1.2 and 1.3."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    """Refuse keys with a password; OpenSSL would otherwise ask for it on the terminal."""
    raise ValueError("the key has a password")


def _read(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise StartError(f"{setting} {path!r}: {error.strerror}: name a PEM file that this user may read") from error


def _certificates(setting: str, path: str, pem: bytes) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        fix = "name a file with -----BEGIN CERTIFICATE----- (openssl x509 -in FILE -out FILE.pem converts one)"
        raise StartError(f"{setting} {path!r} holds no certificate in PEM: {fix}") from error


def _check_time(setting: str, path: str, certificate: x509.Certificate, now: datetime) -> None:
    if now > certificate.not_valid_after_utc:
        raise StartError(f"{setting} {path!r} expired on {_day(certificate.not_valid_after_utc)}: renew it")
    if now < certificate.not_valid_before_utc:
        begins = _day(certificate.not_valid_before_utc)
        raise StartError(f"{setting} {path!r} is not valid before {begins}: check the clock of this machine")


def _check_key(at: tuple[str, str], pem: bytes, certificates: Sequence[x509.Certificate], cert_path: str) -> None:
    """Check that the key is that of the first certificate. Raises StartError."""
    setting, path = at
    try:
        ours = _spell(load_pem_private_key(pem, None).public_key())  # type: ignore[arg-type]  # for DH there are none
    except TypeError as error:
        fix = "decrypt it (openssl pkey -in FILE -out FILE), and let only this user read it"
        raise StartError(f"{setting} {path!r} is encrypted: {fix}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        fix = (
            "set tls_key to the file of the key" if setting == "tls_cert" else "name a file with -----BEGIN PRIVATE KEY"
        )
        raise StartError(f"{setting} {path!r} holds no private key in PEM: {fix}") from error
    theirs = [_spell(certificate.public_key()) for certificate in certificates]
    if ours == theirs[0]:
        return
    if ours in theirs:
        raise StartError(
            f"tls_cert {cert_path!r}: the server's own certificate must come first, before its authorities"
        )
    raise StartError(
        f"{setting} {path!r} is not the key of tls_cert {cert_path!r}: name the two that were made together"
    )


def _check_authorities(path: str, pem: bytes, now: datetime) -> None:
    authorities = [each for each in _certificates("tls_client_ca", path, pem) if _is_authority(each)]
    if not authorities:
        fix = "name the certificate that has signed those of the clients"
        raise StartError(f"tls_client_ca {path!r} holds no certificate of an authority: {fix}")
    if all(now > each.not_valid_after_utc for each in authorities):
        _check_time("tls_client_ca", path, authorities[0], now)


def _check_revocations(path: str, client_ca: bytes, now: datetime) -> None:
    """Check that each authority of clients has a list in force. Without one OpenSSL refuses all of its clients."""
    pem = _read("tls_client_crl", path)
    try:
        lists = [x509.load_pem_x509_crl(_CRL_BEGIN + each) for each in pem.split(_CRL_BEGIN)[1:]]
    except ValueError as error:
        raise StartError(f"tls_client_crl {path!r} cannot be read: name a file with -----BEGIN X509 CRL") from error
    if not lists:
        fix = "name a file with -----BEGIN X509 CRL (openssl crl -inform der -in FILE -out FILE.pem converts one)"
        raise StartError(f"tls_client_crl {path!r} holds no revocation list in PEM: {fix}")
    for each in lists:
        if each.next_update_utc is not None and now > each.next_update_utc:
            since = _day(each.next_update_utc)
            raise StartError(f"tls_client_crl {path!r}: a list is outdated since {since}: get the newest one")
    for authority in filter(_is_authority, x509.load_pem_x509_certificates(client_ca)):
        if not any(_is_list_of(each, authority) for each in lists):
            name = authority.subject.rfc4514_string()
            raise StartError(f"tls_client_crl {path!r} has no list of {name}, which is in tls_client_ca: add its list")


def _is_list_of(revocations: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    key: Any = authority.public_key()  # an authority's key can sign
    return revocations.issuer == authority.subject and revocations.is_signature_valid(key)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return certificate.issuer == certificate.subject  # version 1 knows no extensions


def _spell(key: CertificatePublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _name(certificate: x509.Certificate) -> str:
    """The names that the certificate is for, as far as they fit into a line."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return certificate.subject.rfc4514_string() or "no name"
    found = [str(each.value) for each in names]
    return ", ".join(found[:3]) + (" …" if len(found) > 3 else "")


def _warn_of_mode(files: TlsFiles) -> None:
    """Warn if others on this machine may read the key."""
    path = files.cert if files.key is None else files.key
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if mode & OPEN_TO_OTHERS:
        who = "everybody on this machine" if mode & stat.S_IRWXO else "its group"
        log.warning("the private key %s can be read by %s (mode %03o): chmod 600", path, who, stat.S_IMODE(mode))


def _day(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC")


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
