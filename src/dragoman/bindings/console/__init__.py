"""The console below `/console`: `pages` holds the built files, `endpoint` answers, and signs operators in and out."""

from dragoman.bindings.console.endpoint import Console
from dragoman.bindings.console.pages import Pages

__all__ = ["Console", "Pages"]
