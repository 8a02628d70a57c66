"""Rules of HTTP/1.1 that hold for requests and for answers, whoever reads or writes them.

Invariant: pure functions and constants. Where a message ends is decided by the same words on both sides.
"""

import re

HEAD_BYTES_MAX = 64 * 1024
"""Most bytes of a head; other servers allow 8 to 64 KB. For an answer its interim answers count, too."""

CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
"""Characters that a header's value may not hold (RFC 9110 §5.5): a line break would begin another header."""

CONTROL_CHARACTER = re.compile(CONTROL)
CONTROL_BYTE = re.compile(CONTROL.encode())


def transfer_codings(value: str) -> list[str]:
    """The codings of a Transfer-Encoding, in the order in which they were applied, in lower case (RFC 9112 §6.1).

    `value` has the values of all such headers, joined by commas. White space around a coding and empty items mean
    nothing (RFC 9110 §5.6.1).
    """
    return [coding for item in value.split(",") if (coding := item.strip(" \t").lower())]
