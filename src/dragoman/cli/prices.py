"""`dragoman prices`: prices from elsewhere as tables of the configuration.

Invariant: nothing is fetched, and no file is changed. The list of prices that cannot be taken over gives the reasons.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.arguments import complete_files
from dragoman.cli.command import Group
from dragoman.cli.endings import Unusable
from dragoman.cli.tables import printable

if TYPE_CHECKING:
    from dragoman.config.litellm_prices import ImportedModel

SHOWN = 3
"""How many models are named for one reason, when all of a file are taken."""

FILE_BYTES_MAX = 64 * 1024 * 1024
"""LiteLLM's file has 3.5 MB."""


class Rate(click.ParamType[Decimal]):
    """An exchange rate."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        """Read the rate. Raises BadParameter."""
        if isinstance(value, Decimal):
            return value
        try:
            rate = Decimal(str(value))
        except InvalidOperation:
            rate = Decimal(0)
        if not rate.is_finite() or not Decimal("1e-9") <= rate <= Decimal("1e9"):
            self.fail(f"{value!r}: must be a number above 0, such as 0.92", param, ctx)
        return rate


@click.group(cls=Group)
def prices() -> None:
    """Convert prices of models for the configuration.

    Examples:
      dragoman prices import model_prices_and_context_window.json --models 'gpt-5*'
      dragoman prices import prices.json --currency EUR --rate 0.92 >> dragoman.toml
    """


@prices.command("import")
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path), shell_complete=complete_files
)
@click.option(
    "--models",
    multiple=True,
    metavar="NAMES",
    help="Models to print, separated by commas: gpt-5-mini, 'gpt-5*', or azure/gpt-5-mini=NAME for a price under the "
    "name that your agent uses; repeatable.  [default: all]",
)
@click.option(
    "--rate",
    type=Rate(),
    default=Decimal(1),
    show_default=True,
    metavar="NUMBER",
    help="Value of a dollar in --currency.",
)
@click.option("--currency", default="USD", show_default=True, metavar="CODE", help="Currency of the printed prices.")
def import_(file: Path, models: tuple[str, ...], rate: Decimal, currency: str) -> None:
    """Print the prices in FILE as a table `[prices]`.

    FILE is LiteLLM's model_prices_and_context_window.json; LiteLLM's package contains a copy. Prices are exact. Parts
    that Dragoman cannot express, such as tiers, images and audio, are comments above each model, and summed up on
    stderr.

    Examples:
      dragoman prices import model_prices_and_context_window.json --models 'gpt-5*'
      dragoman prices import prices.json --currency EUR --rate 0.92 >> dragoman.toml
    """
    from dragoman.config.litellm_prices import NoPriceFile, price_table, read_litellm_prices
    from dragoman.config.prices import CURRENCY

    if not CURRENCY.fullmatch(currency):
        raise click.UsageError(f"--currency {currency!r}: must be the code of a currency, like EUR or USD")
    if currency == "USD" and rate != 1:
        raise click.UsageError("--rate is for another currency than the dollar: name it with --currency")
    if currency != "USD" and rate == 1:
        raise click.UsageError(f"LiteLLM's prices are in dollars: say with --rate what a dollar is worth in {currency}")
    if file.stat().st_size > FILE_BYTES_MAX:
        raise Unusable(f"{file}: has more than {FILE_BYTES_MAX} bytes: is it LiteLLM's file?")
    try:
        found = read_litellm_prices(file.read_text(encoding="utf-8-sig"), rate)
    except (NoPriceFile, UnicodeDecodeError) as error:
        raise Unusable(f"{file}: is not LiteLLM's file of prices: {error}") from error
    chosen = choose_models(found, models)
    click.echo(price_table(currency, chosen), nl=False)
    for line in _summary(chosen):
        click.echo(line, err=True)


def choose_models(found: "Mapping[str, ImportedModel]", wanted: Iterable[str]) -> "list[tuple[str, ImportedModel]]":
    """The models that are `wanted`, under the names that they get. All, if none is named. Raises UsageError."""
    words = [word for words in wanted for each in words.split(",") if (word := each.strip())]
    if not words:
        return list(found.items())
    chosen: dict[str, ImportedModel] = {}
    for word in words:
        pattern, _, ours = word.partition("=")
        names = [pattern] if pattern in found else [name for name in found if fnmatchcase(name, pattern)]
        if not names:
            near = difflib.get_close_matches(pattern, found, n=3, cutoff=0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else "is it written as in the file?"
            raise click.UsageError(f"--models {pattern}: the file has no such model; {hint}")
        if ours and len(names) > 1:
            raise click.UsageError(f"--models {word}: {len(names)} models cannot have one name")
        for name in names:
            chosen[ours or name] = found[name]
    return list(chosen.items())


def _summary(chosen: "list[tuple[str, ImportedModel]]") -> list[str]:
    """The numbers of models that were taken and that were not: a line for each reason."""
    taken = sum(model.price is not None for _, model in chosen)
    lines = [f"{taken} of {len(chosen)} models have a price that can be said here."]
    for outcome, whole in (("left out", False), ("in part", True)):
        reasons: Counter[str] = Counter()
        names: dict[str, list[str]] = {}
        for name, model in chosen:
            if (model.price is not None) is whole:
                for reason in dict.fromkeys(reason for _, reason in model.unsaid):
                    reasons[reason] += 1
                    names.setdefault(reason, []).append(printable(name))
        for reason, count in reasons.most_common():
            more = ", …" * (count > SHOWN)
            lines.append(f"{outcome}: {reason}: {count} ({', '.join(names[reason][:SHOWN])}{more})")
    return lines
