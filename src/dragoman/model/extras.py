"""Extras: packages of Dragoman that are installed only where they are wanted.

Invariant: pure values.
"""


def install_command(extra: str) -> str:
    """The command that installs an extra beside an installed wheel, and the one for a clone."""
    return f"pip install 'dragoman[{extra}]', or pip install '.[{extra}]' in a clone"
