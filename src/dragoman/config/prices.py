"""`[prices]`: what tokens, messages, tasks and time cost, by model, by agent and by member of a pool.

Invariant: a price is a decimal number, exactly as the operator wrote it.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from dragoman.config.errors import ConfigError, check_keys

NUMBERS = (
    "input_per_million",
    "cached_per_million",
    "output_per_million",
    "per_message",
    "per_task",
    "per_second",
)

AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,24})?", re.ASCII)

DIGITS = 100
"""The digits with which amounts are computed: more than an exact sum or product can have."""

CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)

_AMOUNT = 'must be an amount from 0 to a trillion, such as 2.50 or "0.000125"'


class Price(Struct, frozen=True):
    """The price of a million tokens that go in, of a million of those that a cache had, of a million that come out, of
    a caller's message, of a task and of a second of work. None: not set."""

    input_per_million: Decimal | None = None
    output_per_million: Decimal | None = None
    per_message: Decimal | None = None
    cached_per_million: Decimal | None = None
    per_task: Decimal | None = None
    per_second: Decimal | None = None

    @property
    def by_token(self) -> bool:
        """Whether tokens cost anything."""
        return bool(self.input_per_million or self.cached_per_million or self.output_per_million)


class Prices(Struct, frozen=True):
    """The prices in one `currency` (ISO 4217), by the names of models and by the ids of agents.

    The price of an agent takes the place of those of its models. `agents` also has the prices of members of pools,
    under `AGENT/MEMBER`, which take the place of their agent's.
    """

    currency: str = ""
    models: Mapping[str, Price] = {}
    agents: Mapping[str, Price] = {}

    def find(self, agent: str, model: str, upstream: str = "") -> Price | None:
        """The price of what an agent used of a model at a member of its pool, both of which may be empty. None if none
        is set."""
        found = self.agents.get(f"{agent}/{upstream}") if upstream else None
        return found or self.agents.get(agent) or (self.models.get(model) if model else None)

    def prices_members(self, agent: str) -> bool:
        """Whether a member of the agent's pool has a price of its own."""
        return any(name.startswith(f"{agent}/") for name in self.agents)


NO_PRICES = Prices()


def read_prices(source: str, table: object) -> Prices:
    """The prices in the table `[prices]` of a file. Raises ConfigError."""
    if table is None:
        return NO_PRICES
    if not isinstance(table, dict):
        raise ConfigError(source, "prices", table, "must be a table: write [prices]")
    check_keys(source, table, ("currency", "models", "agents"), "prices.")
    currency = table.get("currency")
    if not isinstance(currency, str) or not CURRENCY.fullmatch(currency):
        raise ConfigError(source, "prices.currency", currency, "must be the code of a currency, like EUR or USD")
    return Prices(
        currency,
        _read_group(source, "prices.models", table.get("models", {})),
        _read_group(source, "prices.agents", table.get("agents", {})),
    )


def _read_group(source: str, path: str, group: object) -> dict[str, Price]:
    if not isinstance(group, dict):
        raise ConfigError(source, path, group, f'must be a table: write [{path}."NAME"]')
    return {name: read_price(source, f"{path}.{name}", price) for name, price in group.items()}


def read_price(source: str, path: str, price: Any) -> Price:
    """The price in a table that stands at `path`. Raises ConfigError."""
    if not isinstance(price, dict) or not price:
        raise ConfigError(source, path, price, f"must be a table with {', '.join(NUMBERS)}, or some of them")
    check_keys(source, price, NUMBERS, f"{path}.")
    return Price(**{name: read_amount(source, f"{path}.{name}", amount) for name, amount in price.items()})


def read_amount(source: str, path: str, amount: object) -> Decimal:
    """The amount as it is written. The text of a float is the shortest one that stands for it. Raises ConfigError."""
    text = format(Decimal(repr(amount)), "f") if isinstance(amount, float) and amount == amount else str(amount)
    if isinstance(amount, bool) or not isinstance(amount, int | float | str) or not AMOUNT.fullmatch(text):
        raise ConfigError(source, path, amount, _AMOUNT)
    return Decimal(text)
