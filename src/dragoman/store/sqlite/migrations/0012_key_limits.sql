-- Limits of keys.

-- `limits` is a JSON object with the limits of the key by their names; null: those of the settings.
ALTER TABLE keys ADD COLUMN limits TEXT;
