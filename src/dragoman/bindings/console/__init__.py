"""The console below `/console`: `pages` holds the built files, `endpoint` answers, and signs operators in and out."""

from dragoman.bindings.console.endpoint import PROOF, Console
from dragoman.bindings.console.pages import Pages

__all__ = ["PROOF", "Console", "Pages"]
