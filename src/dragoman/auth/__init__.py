"""Who is calling, and how they show it."""
