"""Authentication: the credentials of callers, and the server's own signatures.

`authenticator` finds the principal of a request. It asks `keys` (API keys), `tokens` (JWTs of an issuer, with its keys)
and `certificates` (client certificates that a proxy has verified). `signatures` signs cards and webhook calls, and
verifies signed cards. `proxies` finds the client's address behind trusted proxies. `tokens` and `certificates` are
loaded only if they are configured.

Operators: `sessions` are those of the console, `oidc` signs in by a provider, and `operator_token` is the token of a
server without authentication.
"""
