"""Extras: packages of Dragoman that are installed only where they are wanted.

Invariant: pure values.
"""


def install_command(extra: str) -> str:
    """The advice to install an extra, with the command for an installed wheel and the one for a clone."""
    return f"run pip install 'dragoman[{extra}]', or pip install '.[{extra}]' in a clone"
