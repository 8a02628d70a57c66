"""Writes the OpenAPI document of the admin API to a file, from which the console's types are made."""

import sys
from pathlib import Path

from dragoman import __version__
from dragoman.bindings.admin.openapi import make_admin_document

if __name__ == "__main__":
    target = Path(sys.argv[1])
    document = make_admin_document(__version__)
    # Left alone if nothing changed, so that the console is not built again after every change of the engine.
    if not target.exists() or target.read_bytes() != document:
        target.write_bytes(document)
