"""The output of an operator's commands: its form, and values for people.

Invariant: no text of callers or agents moves the cursor of a terminal.
"""

import click

output = click.option(
    "-o", "--output", "form", type=click.Choice(("text", "json")), default="text", show_default=True, help="The form."
)
"""The flag for the form of the output."""


def age(age_s: float) -> str:
    """An age in its largest unit: `42s`, `15m`, `3h`, `2d`."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if age_s >= length_s:
            return f"{int(age_s // length_s)}{unit}"
    return f"{int(age_s)}s"


def printable(text: str) -> str:
    """The text in one line, without control characters."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
