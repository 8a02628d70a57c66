"""The Model Context Protocol, client and server: it converts messages between bytes and values. No I/O."""
