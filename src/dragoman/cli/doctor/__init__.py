"""`dragoman doctor` and `dragoman conformance`: the examination of `dragoman.doctor`, as commands.

`command` has the commands, `subject` the agent that their options name, `report` and `conformance` what they print.
"""
