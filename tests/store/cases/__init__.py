"""The requirements on every store, as tests that take a `bench`, which makes the stores. Each gets a fresh one.

Invariant: a case uses only the Store protocol, so that each driver meets the same requirements. `conftest` has the
benches of all drivers; a test of one place alone runs the cases of some modules by `cases_of`.
"""
