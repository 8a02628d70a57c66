"""The doctor's report, as text and as JSON, and its exit status.

Invariant: every finding is in both forms, in text with `--verbose`. The text of a stranger's server is printed without
control characters.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
import msgspec

from dragoman.cli.a2a.text import field
from dragoman.doctor.finding import Color, Finding
from dragoman.doctor.identity import ServerIdentity
from dragoman.doctor.observation import Observations

STYLES: dict[str, dict[str, Any]] = {
    "Red": {"fg": "red", "bold": True},
    "Yellow": {"fg": "yellow", "bold": True},
    "Grey": {"fg": "bright_black", "bold": True},
    "Green": {"fg": "green", "bold": True},
    "Fix": {"fg": "cyan"},
}
"""The looks of the words that begin a line, in a terminal."""

FAILS = {"red": (Color.RED,), "yellow": (Color.RED, Color.YELLOW), "never": ()}
"""The colours that make the command fail, by the word of `--fail-on`."""


def report_value(seen: Observations, identity: ServerIdentity, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as one JSON object."""
    return {
        "agent": seen.agent,
        "card": seen.place,
        "server": {"name": identity.name, "evidence": identity.evidence or None},
        "counts": {color.value: count for color, count in _counts(findings)},
        "findings": [msgspec.to_builtins(finding) for finding in findings],
    }


def report_lines(
    seen: Observations, identity: ServerIdentity, findings: Sequence[Finding], *, verbose: bool = False
) -> Iterator[str]:
    """Yield the report as text: the worst findings first, each with its fix.

    Green checks have only their names, unless `verbose`.
    """
    yield field("Agent", seen.agent)
    yield field("Card", seen.place if seen.card is not None else "none")
    yield field("Server", f"{identity.name} ({identity.evidence})" if identity.evidence else identity.name)
    yield field("Result", ", ".join(f"{count} {color}" for color, count in _counts(findings)))
    for color in Color:
        of_color = [finding for finding in findings if finding.color is color]
        if color is Color.GREEN and of_color and not verbose:
            yield field("Green", ", ".join(dict.fromkeys(finding.check for finding in of_color)))
            return
        for finding in of_color:
            yield from _finding_lines(finding)


def _finding_lines(finding: Finding) -> Iterator[str]:
    where = f"{finding.where}: " if finding.where else ""
    yield field(finding.color.capitalize(), f"{finding.check}: {where}{finding.observed} ({finding.section})")
    if finding.fix is not None:
        yield field("Fix", finding.fix)


def drawn_lines(lines: Iterable[str], width: int, *, colored: bool = True) -> Iterator[str]:
    """Yield the lines as a terminal of `width` columns shows them best: folded between words, the colours colored."""
    for line in lines:
        name, colon, _ = line.partition(":")
        folded = textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False) or [""]
        if colon and colored and name in STYLES:
            folded[0] = click.style(name, **STYLES[name]) + folded[0][len(name) :]
        yield from folded


def fails(findings: Iterable[Finding], on: str) -> bool:
    """Whether the command fails, by the word of `--fail-on`."""
    return any(finding.color in FAILS[on] for finding in findings)


def _counts(findings: Iterable[Finding]) -> list[tuple[Color, int]]:
    colors = [finding.color for finding in findings]
    return [(color, colors.count(color)) for color in Color]
