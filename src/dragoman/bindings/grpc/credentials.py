"""RenewableCredentials: the certificate that the gRPC server shows, which may be replaced while it runs.

Invariant: a handshake sees one certificate with its key and its authorities, never parts of two.
"""

import grpc


class RenewableCredentials:
    """A certificate chain and its key, and the authorities of clients' certificates, all as PEM.

    With `client_ca` a client without a certificate that these authorities have signed is refused. C-core asks for what
    is new in each handshake, on threads of its own. Connections that are open go on as they are.
    """

    def __init__(self, chain: bytes, key: bytes, client_ca: bytes | None) -> None:
        self._newest = self._taken = _configuration(chain, key, client_ca)
        self.server = grpc.dynamic_ssl_server_credentials(
            self._newest,
            self._take_new,  # type: ignore[arg-type]  # None says that nothing is new (grpcio's documentation)
            require_client_authentication=client_ca is not None,
        )
        """For `GrpcServer.bind`."""

    def renew(self, chain: bytes, key: bytes, client_ca: bytes | None) -> None:
        """Take these from the next handshake on."""
        self._newest = _configuration(chain, key, client_ca)

    def _take_new(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what has not been taken yet; None says that nothing has changed."""
        newest = self._newest
        if newest is self._taken:
            return None
        self._taken = newest
        return newest


def _configuration(chain: bytes, key: bytes, client_ca: bytes | None) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=client_ca)
