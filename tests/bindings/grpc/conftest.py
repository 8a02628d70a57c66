"""One event loop for the tests of a module: see `one_loop`."""

from tests.grpc_callers import one_loop

__all__ = ["one_loop"]
