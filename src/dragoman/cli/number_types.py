"""Numbers among the arguments of commands. What is no such number is refused with the range that is allowed."""

import re
from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number from `min` to `max`, or without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the number. Raises BadParameter."""
        text = str(value)
        if re.fullmatch(r"[0-9]{1,16}", text, re.ASCII) and self._holds(int(text)):
            return int(text)
        up_to = "on" if self.max is None else f"to {self.max}"
        self.fail(f"{text!r}: must be a whole number from {self.min} {up_to}", param, ctx)

    def _holds(self, number: int) -> bool:
        return (self.min is None or number >= self.min) and (self.max is None or number <= self.max)


class Seconds(click.FloatRange):
    """A number of seconds from `min` to `max`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number. Raises BadParameter."""
        assert self.min is not None
        assert self.max is not None
        try:
            number_s = float(value)
        except ValueError:
            number_s = float("nan")
        if not self.min <= number_s <= self.max:
            self.fail(f"{str(value)!r}: must be a number of seconds from {self.min:g} to {self.max:g}", param, ctx)
        return number_s
