"""`[prices]`: amounts are exact, and a wrong one is named by its place."""

from decimal import Decimal
from pathlib import Path

import pytest

from dragoman.config import Config, ConfigError, Price, load, load_parts


def read(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "dragoman.toml"
    file.write_text(text)
    return load(file, {}, {})


def test_amounts_are_as_they_are_written(tmp_path: Path) -> None:
    prices = read(
        tmp_path,
        """
        [prices]
        currency = "EUR"
        [prices.models."gpt-5:mini"]
        input_per_million = 0.1
        output_per_million = "0.000125"
        [prices.models.cached]
        input_per_million = 1
        cached_per_million = "0.1"
        [prices.agents.echo]
        per_message = 2
        [prices.agents.pool]
        per_task = 0.5
        [prices.agents."pool/eu"]
        per_second = "0.000125000000000000000001"
        """,
    ).prices
    assert prices.currency == "EUR"
    assert prices.models == {
        "gpt-5:mini": Price(Decimal("0.1"), Decimal("0.000125")),
        "cached": Price(Decimal(1), cached_per_million=Decimal("0.1")),
    }
    assert prices.find("other", "gpt-5:mini") == Price(Decimal("0.1"), Decimal("0.000125"))
    assert prices.find("echo", "gpt-5:mini") == Price(per_message=Decimal(2)), "an agent's price comes first"
    assert prices.find("other", "") is None
    assert prices.find("pool", "gpt-5:mini", "us") == Price(per_task=Decimal("0.5"))
    assert prices.find("pool", "gpt-5:mini", "eu") == Price(per_second=Decimal("0.000125000000000000000001"))
    assert (prices.prices_members("pool"), prices.prices_members("echo")) == (True, False)


def test_without_the_table_nothing_has_a_price(tmp_path: Path) -> None:
    assert read(tmp_path, "").prices.find("echo", "m") is None


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ("prices = 5", "prices", "write [prices]"),
        ("[prices]", "prices.currency", "like EUR or USD"),
        ('[prices]\ncurrency = "euro"', "prices.currency", "like EUR or USD"),
        ('[prices]\ncurrency = "EUR"\nmodel = 1', "prices.model", "did you mean models?"),
        ('[prices]\ncurrency = "EUR"\nmodels = 1', "prices.models", '[prices.models."NAME"]'),
        ('[prices]\ncurrency = "EUR"\n[prices.models.m]', "prices.models.m", "input_per_million"),
        ('[prices]\ncurrency = "EUR"\n[prices.models.m]\ninput = 1', "prices.models.m.input", "input_per_million"),
        *(
            (
                f'[prices]\ncurrency = "EUR"\n[prices.agents.a]\nper_message = {amount}',
                "prices.agents.a.per_message",
                "an amount from 0",
            )
            for amount in ("-1", '"1,5"', "nan", "inf", "true", '"1e3"', "1e13", "[1]", '"0.0000000000000000000000001"')
        ),
    ],
)
def test_a_wrong_price_names_the_place(tmp_path: Path, text: str, key: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert refused.value.key == key
    assert allowed in str(refused.value)
    (fault,) = load_parts(tmp_path / "dragoman.toml", {}, {}).faults
    assert fault.key == key, "`dragoman agents check` goes on"
