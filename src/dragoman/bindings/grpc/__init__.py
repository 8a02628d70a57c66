"""A2A over gRPC (A2A 1.0 §10): the third transport beside JSON-RPC and HTTP+JSON.

`server` listens, `procedures` answers calls, `metadata` makes a Request of a call, `services` names what is served: one
value for each version. Imported only if the server serves gRPC, because grpcio and protobuf are an extra.
"""

from dragoman.bindings.grpc.server import GrpcServer

__all__ = ["GrpcServer"]
