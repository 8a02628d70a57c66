"""LiteLLM's published prices, `model_prices_and_context_window.json`, as prices of the table `[prices]`.

Invariant: pure and exact. A price is the number of the file, times a million, times the rate; nothing is rounded.
The fields of the file that a price here cannot say are listed with the reason.
"""

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, localcontext
from typing import Any

from msgspec import Struct

from dragoman.config.prices import AMOUNT, DIGITS, Price

SAMPLE = "sample_spec"
"""The entry that describes the fields."""

MODES = frozenset({"chat", "completion", "responses"})
"""The kinds of model that answer messages."""

TOKENS = (
    ("input_per_million", ("input_cost_per_token",)),
    ("cached_per_million", ("cache_read_input_token_cost", "input_cost_per_token_cache_hit")),
    ("output_per_million", ("output_cost_per_token",)),
)
"""Each key of a price, with the fields that say it; the first one that is there counts."""

SECONDS = ("output_cost_per_second", "input_cost_per_second", "cost_per_second")
"""Fields of a price for time. LiteLLM's calculator takes the first one that is not 0."""

READ = frozenset(name for _, names in TOKENS for name in names) | frozenset(SECONDS)

UNSAID: tuple[tuple[str, str], ...] = (
    (r"tiered_pricing", "prices in tiers by the length of the prompt"),
    (r".*_above_\w+_tokens(_\w+)?", "another price for long prompts (tiers): that of short ones is taken for all"),
    (r"off_peak_pricing", "another price at other hours: the usual one is taken"),
    (r".*_(batches|flex|priority|balanced|ultrafast|decisions)", "another price for other tiers of service"),
    (r"cache_creation_.*", "writes to a cache are counted as input"),
    (r".*(audio|character|speech).*", "audio and characters are not counted"),
    (r".*(image|pixel).*", "images are not counted"),
    (r".*video.*", "videos are not counted"),
    (r"output_cost_per_reasoning_token", "reasoning is counted as output"),
    (r"(search_context|google_maps|file_search|.*_per_query|citation).*", "searches and citations are not counted"),
    (r".*per_request|.*per_text_message", "single requests to a model are not counted: see per_message and per_task"),
    (r".*dbu.*", "prices in units of Databricks stand beside those in dollars"),
    (
        r"(code_interpreter|computer_use|vector_store|ocr|annotation|guardrail|explicit_cache).*",
        "tools are not counted",
    ),
    (r".*per_second.*", "another price for time"),
)
"""The fields that a price here cannot say, by pattern, with the reason."""

MAGNITUDE_MAX = 15
"""The power of ten of a price of the file. Beyond this it is no price of a token, and its digits would fill a page."""

_PRICED = re.compile(r"cost|price|pricing", re.IGNORECASE)


class NoPriceFile(ValueError):
    """The file is not LiteLLM's. The message says why."""


class ImportedModel(Struct, frozen=True):
    """A model of the file. `price` is None if nothing of its prices can be said here. `unsaid` lists what is left out,
    as the fields of the file with a reason each."""

    name: str
    price: Price | None
    unsaid: tuple[tuple[str, str], ...] = ()


def read_litellm_prices(text: str, rate: Decimal = Decimal(1)) -> dict[str, ImportedModel]:
    """The models of the file with this text, in its order, with prices multiplied by `rate`. Raises NoPriceFile."""
    try:
        models = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except (ValueError, RecursionError) as error:
        raise NoPriceFile(f"it is not JSON: {error}") from error
    if not isinstance(models, dict) or not any(isinstance(each, dict) for each in models.values()):
        raise NoPriceFile("it is no object with an object for each model")
    return {name: _read_model(name, model, rate) for name, model in models.items() if name != SAMPLE}


def _read_model(name: str, model: object, rate: Decimal) -> ImportedModel:
    if not isinstance(model, dict):
        return ImportedModel(name, None, (("", "it is no object"),))
    mode = model.get("mode")
    if mode not in MODES:
        return ImportedModel(name, None, (("mode", f"{mode}: it answers no messages" if mode else "it names no mode"),))
    found: dict[str, Decimal] = {}
    unsaid: list[tuple[str, str]] = []
    with localcontext(prec=DIGITS):
        for key, fields in TOKENS:
            field = next((each for each in fields if model.get(each) is not None), None)
            if field is not None:
                _take(found, unsaid, key, field, model[field], rate.scaleb(6))
        field = next((each for each in SECONDS if _amount(model.get(each))), None)
        if field is not None:
            _take(found, unsaid, "per_second", field, model[field], rate)
    unsaid += [(field, reason) for field in model if (reason := _reason(field, model)) is not None]
    if not found:
        return ImportedModel(name, None, tuple(unsaid) or (("", "it has no price"),))
    return ImportedModel(name, Price(**found), tuple(unsaid))


def _take(
    found: dict[str, Decimal], unsaid: list[tuple[str, str]], key: str, field: str, value: object, factor: Decimal
) -> None:
    """Take over one amount, if it is one."""
    amount = _amount(value)
    if amount is None:
        unsaid.append((field, f"{value!r:.40} is no amount of at least 0"))
        return
    amount = (amount * factor).normalize()
    if not AMOUNT.fullmatch(format(amount, "f")):
        unsaid.append((field, f"{amount} has more digits than a price may have"))
        return
    found[key] = amount


def _amount(value: object) -> Decimal | None:
    """The amount; None if it is none. Python's JSON has NaN and Infinity, too, as floats."""
    if not isinstance(value, Decimal) or value < 0 or (value and abs(value.adjusted()) > MAGNITUDE_MAX):
        return None
    return value


def _reason(field: str, model: Mapping[str, Any]) -> str | None:
    """Why a price cannot say this field; None if it says it, or if the field is no price."""
    value = model[field]
    if field in READ or not _PRICED.search(field) or value is None or value == 0:
        return None
    if field == "output_cost_per_reasoning_token" and value == model.get("output_cost_per_token"):
        return None
    return next((why for pattern, why in UNSAID if re.fullmatch(pattern, field)), "it is not known here")


def price_table(currency: str, models: Iterable[tuple[str, ImportedModel]]) -> str:
    """The models as TOML, each under the name that is given, with what is left out as comments."""
    lines = ["[prices]", f'currency = "{currency}"']
    left_out: list[str] = []
    for name, model in models:
        fields: dict[str, list[str]] = {}
        for field, reason in model.unsaid:
            fields.setdefault(reason, []).extend([field] if field else [])
        notes = [f"# {_plain(': '.join(filter(None, (reason, ', '.join(some)))))}" for reason, some in fields.items()]
        if model.price is None:
            left_out += ["", f"# {_text(name)} is left out:", *notes]
            continue
        amounts = ((key, getattr(model.price, key)) for key in Price.__struct_fields__)
        lines += ["", *notes, f"[prices.models.{_text(name)}]"]
        lines += [f'{key} = "{amount:f}"' for key, amount in amounts if amount is not None]
    return "\n".join([*lines, *left_out, ""])


def _plain(text: str) -> str:
    """A text for a comment, which ends with its line."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _text(text: str) -> str:
    """A basic string of TOML, which escapes as JSON does, but for halves of surrogate pairs, which it does not have."""
    return json.dumps(text.encode(errors="replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
