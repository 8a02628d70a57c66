-- name: size_bytes
-- The size of a store in memory.
SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size();
