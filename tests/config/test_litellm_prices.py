"""LiteLLM's published prices: exact, and nothing goes unsaid. The file is an excerpt of the real one."""

import json
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config import Price
from dragoman.config.litellm_prices import ImportedModel, NoPriceFile, price_table, read_litellm_prices
from dragoman.config.prices import read_prices

FILE = Path(__file__).with_name("litellm_prices.json")
TEXT = FILE.read_text(encoding="utf-8")


def price(**amounts: str) -> Price:
    return Price(**{name: Decimal(amount) for name, amount in amounts.items()})


def one(**fields: Any) -> ImportedModel:
    return read_litellm_prices(json.dumps({"m": {"mode": "chat", **fields}}))["m"]


def reasons(model: ImportedModel) -> set[str]:
    return {reason for _, reason in model.unsaid}


@pytest.mark.parametrize(
    ("name", "amounts"),
    [
        ("gpt-4.1-mini", {"input_per_million": "0.4", "cached_per_million": "0.1", "output_per_million": "1.6"}),
        ("gpt-5-mini", {"input_per_million": "0.25", "cached_per_million": "0.025", "output_per_million": "2"}),
        (
            "deepseek/deepseek-chat",
            {"input_per_million": "0.28", "cached_per_million": "0.028", "output_per_million": "0.42"},
        ),
        (
            "gemini/gemini-2.5-pro",
            {"input_per_million": "1.25", "cached_per_million": "0.125", "output_per_million": "10"},
        ),
        ("bedrock/us-east-1/1-month-commitment/anthropic.claude-v1", {"per_second": "0.0175"}),
        ("dashscope/qwen-flash", None),
        ("text-embedding-3-small", None),
        ("whisper-1", None),
        ("azure/gpt-realtime-translate-2026-05-06", None),
    ],
)
def test_prices_are_those_of_the_file(name: str, amounts: dict[str, str] | None) -> None:
    assert read_litellm_prices(TEXT)[name].price == (None if amounts is None else price(**amounts))


def test_a_rate_changes_them_exactly() -> None:
    found = read_litellm_prices(TEXT, Decimal("0.9217"))["gpt-5-mini"].price
    assert found == price(input_per_million="0.230425", cached_per_million="0.0230425", output_per_million="1.8434")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dashscope/qwen-flash", {"prices in tiers by the length of the prompt"}),
        ("whisper-1", {"audio_transcription: it answers no messages"}),
        ("text-embedding-3-small", {"embedding: it answers no messages"}),
        ("deepseek/deepseek-chat", set()),
        ("perplexity/sonar", {"searches and citations are not counted"}),
        (
            "gemini/gemini-2.5-pro",
            {
                "another price for long prompts (tiers): that of short ones is taken for all",
                "another price for other tiers of service",
                "searches and citations are not counted",
            },
        ),
    ],
)
def test_what_cannot_be_said_has_a_reason(name: str, said: set[str]) -> None:
    assert reasons(read_litellm_prices(TEXT)[name]) == said


def test_fields_of_all_kinds_have_a_reason() -> None:
    unsaid = one(
        input_cost_per_token=1e-6,
        output_cost_per_reasoning_token=2e-6,
        output_cost_per_image=0.04,
        input_cost_per_audio_token=1e-5,
        cache_creation_input_token_cost=1e-6,
        input_cost_per_request=0.01,
        price_of_nobody=7,
        input_cost_per_video_per_second=0,
        supports_vision=True,
    ).unsaid
    assert dict(unsaid) == {
        "output_cost_per_reasoning_token": "reasoning is counted as output",
        "output_cost_per_image": "images are not counted",
        "input_cost_per_audio_token": "audio and characters are not counted",
        "cache_creation_input_token_cost": "writes to a cache are counted as input",
        "input_cost_per_request": "single requests to a model are not counted: see per_message and per_task",
        "price_of_nobody": "it is not known here",
    }


@pytest.mark.parametrize("amount", [-1, "0.1", True, [], 1e99, 1e-99])
def test_an_amount_that_is_none_is_left_out_with_its_field(amount: Any) -> None:
    found = one(input_cost_per_token=1e-6, output_cost_per_token=amount)
    assert found.price == price(input_per_million="1")
    assert [field for field, _ in found.unsaid] == ["output_cost_per_token"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"a": 1}', "<html>", "[" * 10_000, '{"m": NaN}'])
def test_what_is_not_the_file_is_refused(text: str) -> None:
    with pytest.raises(NoPriceFile):
        read_litellm_prices(text)


def test_the_table_is_what_the_configuration_reads_with_what_is_left_out_as_comments() -> None:
    models = read_litellm_prices(TEXT, Decimal("0.92"))
    text = price_table("EUR", models.items())
    prices = read_prices("d.toml", tomllib.loads(text)["prices"])
    assert prices.currency == "EUR"
    assert prices.models == {name: model.price for name, model in models.items() if model.price is not None}
    assert '\n# "whisper-1" is left out:\n# audio_transcription: it answers no messages: mode\n' in text
    assert "# searches and citations are not counted: search_context_cost_per_query\n" in text


@given(st.text(), st.text())
def test_no_name_gets_out_of_its_place(name: str, field: str) -> None:
    model = ImportedModel(name, price(per_task="1"), ((field, "no"),))
    text = price_table("EUR", [(name, model), ("gone", ImportedModel("gone", None, ((field, "no"),)))])
    (found,) = tomllib.loads(text)["prices"]["models"]
    assert found == name.encode(errors="replace").decode()
