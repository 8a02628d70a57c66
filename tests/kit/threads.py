"""The threads of this process that a test can be blamed for."""

import threading


def running_threads() -> set[threading.Thread]:
    """All but timers: the log of a server that an earlier test ran in this process starts one a minute."""
    return {thread for thread in threading.enumerate() if not isinstance(thread, threading.Timer)}
