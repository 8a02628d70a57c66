"""The server's reports to its operator: logs, metrics, spans."""
