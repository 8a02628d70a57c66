"""The part that both SQL stores share: statements that are written once, the port that runs them, and the parts of
the Store protocol that need no more than that port."""
