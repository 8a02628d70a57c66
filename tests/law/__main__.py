"""Writes the tables anew: `python -m tests.law`, or one of them: `python -m tests.law worker`."""

import sys

from tests.law.tables import TABLES, write

for name in sys.argv[1:] or TABLES:
    write(name)
