"""The description of what this server answers over HTTP, for programs at `/openapi.json` and for people at `/docs`.

`document` makes OpenAPI 3.1 from a table of operations, which the admin API does too. `operations` is the table of
HTTP+JSON and of the server's own paths, `shapes` has the structs that only requests have, `page` renders a document
as HTML, and `endpoint` answers.
"""

from dragoman.bindings.openapi.endpoint import Description

__all__ = ["Description"]
