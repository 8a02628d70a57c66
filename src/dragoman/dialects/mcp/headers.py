"""Values of headers that repeat fields of a request's body: as they are, or in base64 (2026-07-28, Value Encoding).

Invariant: `decode_value` gives back what `encode_value` was given, whatever it is.
"""

import binascii
import re
from base64 import b64encode

_PLAIN = re.compile(r"[!-~](?:[ -~\t]*[!-~])?|", re.ASCII)
"""A value that may stand in a header as it is (RFC 9110 §5.5)."""

BEGIN, END = "=?base64?", "?="


def encode_value(value: str) -> str:
    """Encode a value for a header."""
    if _PLAIN.fullmatch(value) and not (value.startswith(BEGIN) and value.endswith(END)):
        return value
    return f"{BEGIN}{b64encode(value.encode('utf-8', 'replace')).decode()}{END}"


def decode_value(value: str) -> str | None:
    """Decode the value of a header; None if it is not what any client may send."""
    if not _PLAIN.fullmatch(value):
        return None
    if not (value.startswith(BEGIN) and value.endswith(END) and len(value) >= len(BEGIN) + len(END)):
        return value
    try:
        return binascii.a2b_base64(value[len(BEGIN) : -len(END)], strict_mode=True).decode()
    except ValueError:  # binascii.Error and UnicodeDecodeError
        return None
