"""The doctor: looks at an agent of anybody, and says what is wrong with it, what it is, and what to change.

`observer` asks the agent that a `subject` names, with a `look` at each endpoint and a `trial` with messages, and
records an `observation` of each answer. The `checks` judge the observations and give `finding`s, without input or
output; `identity` says which server it is. `dragoman doctor` and the console are its users.
"""
