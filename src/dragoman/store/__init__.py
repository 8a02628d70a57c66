"""Where tasks and their logs are kept."""
