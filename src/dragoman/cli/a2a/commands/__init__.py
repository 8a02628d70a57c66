"""The client commands, by their names.

Invariant: a module imports what its command needs when the command runs, so that `--help` is quick.
"""
