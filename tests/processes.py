"""Processes that tests start.

Invariant: none of them outlives the tests, however these end: also when a worker of pytest is killed.
"""

import shutil

ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") is not None else ()
"""What stands before a command, so that its process is killed when the thread ends that started it. The process is the
command's own. Where there is no setpriv (util-linux), only the test's own clean-up ends it."""
