"""What the server tells its operator: logs, metrics, spans."""
