-- Receivers can see the order of the deliveries of one event: 1, 2 … for its artifacts, 0 for the last one.
ALTER TABLE deliveries ADD COLUMN part INTEGER NOT NULL DEFAULT 0;
