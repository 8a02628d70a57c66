"""The parts that the gRPC dialects of A2A 1.0 and 0.3 share: values in protobuf, and the bounds of a message.

`values` converts JSON values and time stamps, `bounds` counts what a message holds before it is built. Imported only
where gRPC is used, because protobuf is an extra.
"""
