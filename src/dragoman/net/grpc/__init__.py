"""gRPC to other hosts, in bytes: the door (`egress`), the channels behind it (`dialer`), the meaning of a status
(`status`).

Only here is the `grpc` package used by a client. It is loaded on the first call, so that nobody else pays for it.
"""

from dragoman.net.grpc.egress import GrpcEgress, GrpcFlow
from dragoman.net.grpc.status import GrpcReply

__all__ = ["GrpcEgress", "GrpcFlow", "GrpcReply"]
