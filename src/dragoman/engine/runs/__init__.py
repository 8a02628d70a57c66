"""Runs: executions of an agent on a task or, if it answers directly, without one.

`run` is one on a task: what the agent sees of the engine, and `run_writer` brings its events to the log. `direct` is
one without a task, and `auto_run` one that becomes a task when it has to. `replay` is what a later run of the same task
repeats, and `registry` holds the runs of the process. `history` gives the agent what earlier tasks left.
"""
