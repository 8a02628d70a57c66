"""A2A over gRPC (A2A 1.0 §10): the third transport beside JSON-RPC and HTTP+JSON.

`server` listens, with renewable credentials if it has TLS. `procedures` answers calls: each is an `rpc`, whose
`metadata` make a Request, and whose stream consists of `frames`. `services` names what is served: one value for each
version. Imported only if the server serves gRPC, because grpcio and protobuf are an extra.
"""

from dragoman.bindings.grpc.metadata import HttpSide
from dragoman.bindings.grpc.server import GrpcServer, RenewableCredentials

__all__ = ["GrpcServer", "HttpSide", "RenewableCredentials"]
