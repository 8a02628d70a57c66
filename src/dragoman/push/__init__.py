"""Webhooks: what tasks owe to them, rendered, and the calls that are made until it has arrived (DESIGN §7)."""
