"""The description of what this server answers over HTTP, for programs at `/openapi.json` and for people at `/docs`.

`document` makes OpenAPI 3.1 from a table of operations, which the admin API does too. Each API has a table in a module
of its own: `a2a` for HTTP+JSON of 1.0 (with requests in `shapes`), `legacy` for that of 0.3, `chat`, `workers`, `own`
for the server's own paths, and `calls` for webhooks. `operations` puts them together, `refusals` describes refusals,
`page` renders a document as HTML, and `endpoint` answers.
"""

from dragoman.bindings.openapi.endpoint import Description

__all__ = ["Description"]
