"""Our client: from a value to another agent, and its answer back as a value, in whatever dialect it speaks."""
