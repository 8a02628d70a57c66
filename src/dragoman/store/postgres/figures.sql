-- name: size_bytes
-- The size of the tables in the schema $1, with their indexes and large values.
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(quote_ident($1));
