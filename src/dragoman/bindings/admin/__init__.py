"""The admin API below `/admin/v1`, for operators: `endpoint` answers, and `openapi` describes it.

`routes` declares it as a table of `route`s; those of `remote_routes` are about agents of other servers.
"""

from dragoman.bindings.admin.endpoint import Admin

__all__ = ["Admin"]
