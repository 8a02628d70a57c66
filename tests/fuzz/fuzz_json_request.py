"""libFuzzer runs `targets.json_request`: `python -m tests.fuzz.fuzz_json_request [OPTION|FOLDER]…`."""

import sys

import atheris

with atheris.instrument_imports(include=["dragoman"]):
    from tests.fuzz.targets import json_request

atheris.Setup(sys.argv, json_request)
atheris.Fuzz()
