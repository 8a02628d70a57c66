"""The doctor's report, as text and as JSON, and its exit status.

Invariant: every finding is in both forms, in text with `--verbose`. The text of a stranger's server is printed without
control characters.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from dragoman.cli.a2a.text import field, printable
from dragoman.cli.a2a.wire import PLAIN_HEADERS
from dragoman.client.credentials import REDACTED, redact
from dragoman.doctor.finding import Color, Evidence, Finding
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

BODY_CHARS_MAX = 4_000
"""How much of a body `--explain` shows."""

FAILS = {"red": (Color.RED,), "yellow": (Color.RED, Color.YELLOW), "never": ()}
"""The colours that make the command fail, by the word of `--fail-on`."""


def report_value(
    seen: Observations, identity: ServerIdentity, judged: Sequence[Evidence], secrets: Sequence[str], *, explain: bool
) -> dict[str, Any]:
    """Return the report as one JSON object; with `explain` each finding has its exchange, None if none shows it."""
    findings = [each.finding for each in judged]
    return {
        "agent": seen.agent,
        "card": seen.place,
        "server": {"name": identity.name, "evidence": identity.evidence or None},
        "counts": {color.value: count for color, count in _counts(findings)},
        "findings": [
            msgspec.to_builtins(each.finding) | ({"exchange": _exchange_value(each, secrets)} if explain else {})
            for each in judged
        ],
    }


def _exchange_value(judged: Evidence, secrets: Sequence[str]) -> dict[str, Any] | None:
    came = judged.exchange
    if came is None:
        return None
    answer = {"failure": came.failure} if came.failure else {"status": came.status, **_message(came.headers, came.body)}
    request = {"method": came.verb, "url": came.url, **_message(came.sent_headers, came.sent)}
    text = msgspec.json.encode({"request": request, "answer": answer}).decode()
    document: dict[str, Any] = msgspec.json.decode(redact(text, secrets))
    return document


def _message(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    text = body.decode("utf-8", "replace")
    return {"headers": dict(_plain(headers)), "body": text[:BODY_CHARS_MAX]}


def _plain(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield headers; the value of one that could carry a credential is left out."""
    for name, value in headers.items():
        yield name, value if name.lower() in PLAIN_HEADERS or name.lower() in _OF_ANSWERS else REDACTED


_OF_ANSWERS = frozenset({"access-control-allow-origin", "content-encoding", "etag", "location", "www-authenticate"})


def exchange_lines(judged: Evidence, secrets: Sequence[str]) -> Iterator[str]:
    """Yield the exchange that shows a finding, as `--debug` shows one."""
    came = judged.exchange
    if came is None:
        return
    lines = [f"> {came.verb} {came.url}", *(f"> {name}: {value}" for name, value in _plain(came.sent_headers))]
    lines += [f"> {line}" for line in _body_lines(came.sent)]
    lines += [f"< {came.failure}"] if came.failure else [f"< HTTP {came.status}"]
    lines += [f"< {name}: {value}" for name, value in _plain(came.headers)]
    lines += [f"< {line}" for line in _body_lines(came.body)]
    for line in lines:
        yield f"  {printable(redact(line, secrets))}"


def _body_lines(body: bytes) -> list[str]:
    text = body.decode("utf-8", "replace")
    lines = [line for line in text[:BODY_CHARS_MAX].splitlines() if line.strip()]
    return [*lines, f"… and {len(text) - BODY_CHARS_MAX} characters more"] if len(text) > BODY_CHARS_MAX else lines


def report_lines(
    seen: Observations,
    identity: ServerIdentity,
    judged: Sequence[Evidence],
    secrets: Sequence[str] = (),
    *,
    verbose: bool = False,
    explain: bool = False,
) -> Iterator[str]:
    """Yield the report as text: the worst findings first, each with its fix, and with `explain` with its exchange.

    Green checks have only their names, unless `verbose`.
    """
    findings = [each.finding for each in judged]
    yield field("Agent", seen.agent)
    yield field("Card", seen.place if seen.card is not None else "none")
    yield field("Server", f"{identity.name} ({identity.evidence})" if identity.evidence else identity.name)
    yield field("Result", ", ".join(f"{count} {color}" for color, count in _counts(findings)))
    for color in Color:
        of_color = [each for each in judged if each.finding.color is color]
        if color is Color.GREEN and of_color and not verbose:
            yield field("Green", ", ".join(dict.fromkeys(each.finding.check for each in of_color)))
            return
        for each in of_color:
            yield from _finding_lines(each.finding)
            if explain and each.finding.fix is not None:
                yield from exchange_lines(each, secrets)


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
