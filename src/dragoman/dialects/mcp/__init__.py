"""The Model Context Protocol, in both directions: its messages as bytes and as values. No I/O."""
