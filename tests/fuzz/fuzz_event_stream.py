"""libFuzzer runs `targets.event_stream`: `python -m tests.fuzz.fuzz_event_stream [OPTION|FOLDER]…`."""

import sys

import atheris

with atheris.instrument_imports(include=["dragoman"]):
    from tests.fuzz.targets import event_stream

atheris.Setup(sys.argv, event_stream)
atheris.Fuzz()
