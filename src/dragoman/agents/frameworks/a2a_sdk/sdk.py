"""Chooses the release of the SDK by its types, which are protobuf messages since 1.0."""

import importlib
from functools import cache

from dragoman.agents.frameworks.a2a_sdk.turn import Sdk


@cache
def find_sdk() -> Sdk:
    """Return the release that is installed."""
    protobuf = hasattr(importlib.import_module("a2a.types").Message, "DESCRIPTOR")
    module = importlib.import_module(f"{__package__}.{'v1' if protobuf else 'v03'}")
    sdk: Sdk = module.SDK
    return sdk
