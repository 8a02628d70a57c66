"""Hints that something moved. May lose, repeat, reorder; the store is the truth."""
