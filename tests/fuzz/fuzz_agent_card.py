"""libFuzzer runs `targets.agent_card`: `python -m tests.fuzz.fuzz_agent_card [OPTION|FOLDER]…`."""

import sys

import atheris

with atheris.instrument_imports(include=["dragoman"]):
    from tests.fuzz.targets import agent_card

atheris.Setup(sys.argv, agent_card)
atheris.Fuzz()
