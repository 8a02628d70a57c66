"""Outgoing connections: every request from Dragoman to another host goes through this package."""
