-- Deliveries of one event have an order that a receiver can see: 1, 2 … for its artifacts, 0 for what is told last.
ALTER TABLE deliveries ADD COLUMN part INTEGER NOT NULL DEFAULT 0;
