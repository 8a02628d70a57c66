"""libFuzzer runs `targets.http1_answer`: `python -m tests.fuzz.fuzz_http1_answer [OPTION|FOLDER]…`."""

import sys

import atheris

with atheris.instrument_imports(include=["dragoman"]):
    from tests.fuzz.targets import http1_answer

atheris.Setup(sys.argv, http1_answer)
atheris.Fuzz()
