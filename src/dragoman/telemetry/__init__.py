"""The server's reports to its operator: logs, metrics, spans.

`logs` formats log records, and `coalescing` counts those that repeat themselves. `counts` are the metrics as numbers,
which `prometheus` renders as text. `opentelemetry` makes spans and metrics if the package is installed.
"""
