"""Processes that tests start.

Invariant: none of them outlives the tests, however these end: also when a worker of pytest is killed.
"""

import shutil

ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") is not None else ()
"""The prefix of a command whose process is to be killed when the thread ends that started it. The process is the
command's own. Where there is no setpriv (util-linux), only the test's own clean-up ends it."""
