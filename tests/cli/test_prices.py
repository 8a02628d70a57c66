"""`dragoman prices import`: LiteLLM's file as a table of the configuration."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.kit.commands import invoke

FILE = str(Path(__file__).parents[1] / "config" / "litellm_prices.json")


def models(*words: str) -> dict[str, Any]:
    ran = invoke("prices", "import", FILE, *words)
    assert ran.exit_code == 0, ran.stderr
    found: dict[str, Any] = tomllib.loads(ran.stdout)["prices"]["models"]
    return found


def test_chosen_models_are_printed_under_the_names_that_they_get() -> None:
    found = models("--models", "gpt-*, azure/gpt-4.1-mini=my-deployment", "--rate", "0.92", "--currency", "EUR")
    assert set(found) == {"gpt-4.1-mini", "gpt-5-mini", "my-deployment"}
    assert found["my-deployment"]["input_per_million"] == "0.368"
    assert len(models()) == 7


def test_what_is_left_out_is_summed_up_with_its_reason() -> None:
    ran = invoke("prices", "import", FILE)
    assert "7 of 11 models have a price that can be said here." in ran.stderr
    assert "left out: audio_transcription: it answers no messages: 1 (whisper-1)" in ran.stderr
    partly = "in part: searches and citations are not counted: 5 (azure/gpt-4.1-mini, gemini/gemini-2.5-pro, "
    assert partly in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--models", "gpt-5-mni"), "--models gpt-5-mni: the file has no such model; did you mean gpt-5-mini"),
        (("--models", "gpt-*=mine"), "2 models cannot have one name"),
        (("--currency", "euro"), "must be the code of a currency, like EUR or USD"),
        (("--currency", "EUR"), "say with --rate what a dollar is worth in EUR"),
        (("--rate", "0.9"), "--rate is for another currency than the dollar: name it with --currency"),
        (("--rate", "much", "--currency", "EUR"), "'much': must be a number above 0, such as 0.92"),
        (("--rate", "nan", "--currency", "EUR"), "must be a number above 0"),
    ],
)
def test_wrong_input_says_how_to_put_it_right(words: tuple[str, ...], said: str) -> None:
    ran = invoke("prices", "import", FILE, *words)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert said in " ".join(ran.stderr.split())


def test_another_file_is_refused() -> None:
    ran = invoke("prices", "import", __file__)
    assert ran.exit_code == 2
    assert "is not LiteLLM's file of prices: it is not JSON" in ran.stderr
