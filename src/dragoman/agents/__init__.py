"""What can stand behind a card."""
