"""Webhooks: rendering of deliveries, and the calls that are repeated until a delivery has arrived.

`announcer` renders the deliveries of a task's steps when they happen, and decides which URLs may be registered.
`courier` claims due deliveries from the outbox, calls, and writes the outcomes. `caller` makes one call. `lanes` counts
the calls under way, by the health of their hosts and for each host. `outcome` decides what an attempt amounts to. It is
pure, as is `render_step` in `announcer`.

`server/webhooks.py` puts them together. The rest of the code knows `engine.announcements` and `store.outbox`.
"""
