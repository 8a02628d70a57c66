"""The only way out: whatever Dragoman asks of another host goes through here."""
