"""The console below `/console`: `pages` holds the built files, `endpoint` answers, and signs operators in and out.

`provider` signs them in by an OpenID provider. `cookies` names, reads and sets the cookies of both.
"""

from dragoman.bindings.console.endpoint import PROOF, Console
from dragoman.bindings.console.pages import InstalledPages, Pages, being_built
from dragoman.bindings.console.provider import CALLBACK, ProviderDoor

__all__ = ["CALLBACK", "PROOF", "Console", "InstalledPages", "Pages", "ProviderDoor", "being_built"]
