"""The admin API below `/admin/v1`, for operators: `endpoint` answers, and `openapi` describes it.

`routes` finds the row of `dragoman.admin` that a request asks for.
"""

from dragoman.bindings.admin.endpoint import Admin

__all__ = ["Admin"]
