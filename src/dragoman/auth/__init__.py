"""Authentication: the credentials of callers, and the server's own signatures."""
