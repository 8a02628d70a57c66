"""TLS of outgoing connections: which authorities are trusted, and which certificate is shown.

Invariant: certificates are verified unless `verify` is explicitly False.
"""

import re
import ssl

from msgspec import Struct


class BadTls(ValueError):
    """A file of a ClientTls that cannot be used. The message names the file and the fix."""


class ClientTls(Struct, frozen=True, kw_only=True):
    """How a client connects over TLS. All files are PEM.

    `ca_file` has the authorities that are trusted in place of the machine's; empty: those of the machine.
    `certificate_file` is shown to servers that ask for one (mutual TLS), with its key in `key_file`, or in the same
    file. `verify` False accepts any certificate: for development only.
    """

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    verify: bool = True


MACHINE_TLS = ClientTls()
"""Trust the authorities that the machine trusts, and show no certificate."""


class TlsSession(Struct, frozen=True, kw_only=True):
    """The terms of a TLS handshake with a server. `version` is such as `TLSv1.3`.

    `expires_s` is when its certificate expires, in seconds since the epoch; None if it was not verified.
    """

    version: str
    cipher: str
    expires_s: float | None = None


def describe_session(connected: ssl.SSLObject | ssl.SSLSocket) -> TlsSession:
    """Return what was agreed on a connection whose handshake is complete."""
    certificate, cipher = connected.getpeercert() or {}, connected.cipher()
    expires = certificate.get("notAfter")
    return TlsSession(
        version=connected.version() or "",
        cipher="" if cipher is None else cipher[0],
        expires_s=float(ssl.cert_time_to_seconds(expires)) if isinstance(expires, str) else None,
    )


_REFUSAL = re.compile("ALERT_(CERTIFICATE_|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|UNKNOWN_CA)")
"""The reasons, as OpenSSL spells them, for which a server ends TLS over the client's certificate (RFC 8446 §6.2)."""

_NOT_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
"""The reasons with which releases 1.1 to 3.5 of OpenSSL give up on bytes that are no record of TLS."""


def refuses_certificate(error: BaseException | None) -> bool:
    """Whether the other side ended TLS because of the certificate of this side, or for want of one."""
    return isinstance(error, ssl.SSLError) and _REFUSAL.search(error.reason or "") is not None


def is_not_tls(error: BaseException | None) -> bool:
    """Whether the other side answered a handshake with something that is not TLS, such as plain HTTP."""
    return isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS


def make_tls_context(tls: ClientTls) -> ssl.SSLContext:
    """Load the certificates, for HTTP/1.1. This reads files: call it on a thread. Raises BadTls."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
    except (OSError, ValueError) as error:
        raise BadTls(f"{tls.ca_file}: {_reason(error)}: name a PEM file with certificate authorities") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate_file:
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file or None, password=_no_password)
        except (OSError, ValueError) as error:
            named = f"{tls.certificate_file} and {tls.key_file}" if tls.key_file else tls.certificate_file
            raise BadTls(
                f"{named}: {_reason(error)}: name a PEM certificate and its key, without a password"
            ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    """Refuse keys with a password; OpenSSL would otherwise ask for it on the terminal."""
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
        return (getattr(error, "reason", "") or str(error) or "cannot be read").replace("_", " ").lower()
    return error.strerror or "cannot be read"
