"""Wire bytes to operations and results to wire bytes; pure, no I/O."""
