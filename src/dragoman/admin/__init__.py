"""The admin API as values: what operators ask, and what they are answered.

Invariant: nothing here reads or changes anything. The engine answers, the bindings carry questions over HTTP, and the
command line asks a server or a store; all three import this package, which imports none of them.
"""
