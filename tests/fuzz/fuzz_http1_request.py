"""libFuzzer runs `targets.http1_request`: `python -m tests.fuzz.fuzz_http1_request [OPTION|FOLDER]…`."""

import sys

import atheris

with atheris.instrument_imports(include=["dragoman"]):
    from tests.fuzz.targets import http1_request

atheris.Setup(sys.argv, http1_request)
atheris.Fuzz()
