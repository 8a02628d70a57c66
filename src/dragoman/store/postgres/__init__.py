"""The store in PostgreSQL, which any number of replicas share: a pool of connections, and rows that decide."""
