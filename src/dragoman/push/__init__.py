"""Webhooks: rendering of deliveries, and the calls that are repeated until a delivery has arrived (DESIGN §7)."""
