"""What an operation means: tasks, runs, streams."""
