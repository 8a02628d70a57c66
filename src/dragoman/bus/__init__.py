"""The bus carries hints between the replicas of one store. It may lose, repeat or reorder them; the store is the truth.

`api` is the protocol, and the driver `none`. `cluster` is the bus over a carrier: it seals each message (`envelope`),
connects again for ever, and listens to itself. `nats` and `postgres` are the carriers, and `open` chooses one.
"""
