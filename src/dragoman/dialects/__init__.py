"""Dialects: they decode wire bytes to operations and encode results to wire bytes. Pure, no I/O."""
