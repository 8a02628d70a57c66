"""Costs: what runs cost by the operator's prices. Reports and budgets both compute with this.

Invariant: pure and exact. A cost is a sum of decimal numbers, of which none is rounded. A sum that leaves something out
says so.
"""

from collections.abc import Iterable
from decimal import Decimal, localcontext

from msgspec import Struct

from dragoman.config.prices import DIGITS, Price, Prices
from dragoman.store.usage import Used

NOTHING = Decimal(0)


class Cost(Struct, frozen=True):
    """The cost of runs, in the currency of the prices. `amount` is None if no price applies to any of them.

    Unless it is `complete`, it leaves out what has no price, or tokens that nobody reported.
    """

    amount: Decimal | None = None
    complete: bool = False


def cost_of_run(prices: Prices, agent: str, used: Iterable[Used]) -> Cost:
    """The cost of a run of `agent`, by what it used of each model: `used_by_task` and `used_by_answer` count that.

    Sums of several runs of one agent cost what the runs cost together. The price of a task, of a message and of time is
    that of the first model of a run, where the agent has no price of its own.
    """
    return sum_costs([_cost(prices.find(agent, each.model, each.upstream), each) for each in used])


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """The cost of all of them together. It is complete if each one is, and there is one."""
    known, complete = [], True
    for cost in costs:
        complete = complete and cost.complete
        if cost.amount is not None:
            known.append(cost.amount)
    if not known:
        return Cost()
    with localcontext(prec=DIGITS):
        return Cost(sum(known, NOTHING), complete)


def known_cost(prices: Prices, agent: str) -> Decimal | None:
    """The cost of a run of `agent` with its first message, whatever it uses; None if that is not known before."""
    price = prices.find(agent, "")
    if price is None or price.by_token or price.per_second or prices.prices_members(agent):
        return None
    with localcontext(prec=DIGITS):
        return (price.per_task or NOTHING) + (price.per_message or NOTHING)


def amount_text(amount: Decimal) -> str:
    """An amount as reports show it: all of its digits, and no zeros behind them."""
    with localcontext(prec=DIGITS):
        return format(amount.normalize(), "f")


def _cost(price: Price | None, used: Used) -> Cost:
    """The cost of what was used of one model."""
    if price is None:
        return Cost()
    cached = min(used.cached_tokens, used.input_tokens)
    fresh = used.input_tokens - cached
    per_cached = price.input_per_million if price.cached_per_million is None else price.cached_per_million
    with localcontext(prec=DIGITS):
        amount = (price.per_task or NOTHING) * used.runs
        amount += (price.per_message or NOTHING) * used.messages
        amount += ((price.per_second or NOTHING) * (used.duration_ms - used.waited_ms)).scaleb(-3)
        amount += ((price.input_per_million or NOTHING) * fresh).scaleb(-6)
        amount += ((per_cached or NOTHING) * cached).scaleb(-6)
        amount += ((price.output_per_million or NOTHING) * used.output_tokens).scaleb(-6)
    return Cost(amount, not price.by_token or (used.reported >= used.runs and not used.uncertain))
