"""libFuzzer runs `targets.protobuf_request`: `python -m tests.fuzz.fuzz_protobuf_request [OPTION|FOLDER]…`."""

import sys

import atheris

with atheris.instrument_imports(include=["dragoman"]):
    from tests.fuzz.targets import protobuf_request

atheris.Setup(sys.argv, protobuf_request)
atheris.Fuzz()
