"""The bus carries hints that a task changed. It may lose, repeat or reorder them; the store is the truth."""
