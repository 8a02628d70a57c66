"""The bus carries hints between the replicas of one store. It may lose, repeat or reorder them; the store is the truth.

`api` is the protocol, and the driver `none`.
"""
