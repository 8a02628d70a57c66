"""The admin API below `/admin/v1`, for operators: `routes` declares it, `endpoint` answers, `openapi` describes it."""

from dragoman.bindings.admin.endpoint import Admin

__all__ = ["Admin"]
