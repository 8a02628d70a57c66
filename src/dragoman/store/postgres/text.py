"""Text: strings of callers as PostgreSQL can keep them, which stores every character but NUL.

Invariant: `from_text(to_text(value)) == value`, and different values stay different.
"""


def to_text(value: str) -> str:
    """Escape NULs, and the backslash that escapes them."""
    if "\0" in value or "\\" in value:
        return value.replace("\\", "\\\\").replace("\0", "\\0")
    return value


def from_text(value: str) -> str:
    """Undo `to_text`."""
    if "\\" not in value:
        return value
    return "\\".join(piece.replace("\\0", "\0") for piece in value.split("\\\\"))
