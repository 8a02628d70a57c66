-- Webhook configurations and their deliveries.
-- A writer that changes the deliveries of a webhook holds the lock of its row. So the holder may read them and decide.

-- The hosts of webhooks, as scheme://host:port. `lane` is the health: 0 healthy, 1 unknown, 2 failing.
CREATE TABLE dragoman.push_hosts (
    host integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane smallint NOT NULL DEFAULT 1,
    name text COLLATE "C" NOT NULL UNIQUE
);

-- Hosts that operators have paused: deliveries to them wait. `name` covers a host, `host:port`, or `scheme://host:port`.
-- `paused_by` is the principal.
CREATE TABLE dragoman.paused_hosts (
    name text COLLATE "C" PRIMARY KEY,
    paused_ms bigint NOT NULL,
    paused_by text COLLATE "C" NOT NULL
);

-- The hosts that are covered by a paused one.
CREATE VIEW dragoman.paused_push_hosts AS
SELECT h.host, p.name FROM dragoman.paused_hosts p JOIN dragoman.push_hosts h
    ON p.name IN (h.name, split_part(h.name, '://', 2), rtrim(rtrim(split_part(h.name, '://', 2), '0123456789'), ':'));

-- A webhook of a task. `due_ms` is when its oldest pending delivery is due, or when its claim runs out; it is null when the
-- webhook has no pending delivery. `claimed` is the delivery in flight, and `claimant` the replica that sends it. `retries`
-- says that the oldest one has failed before, `large` that its body has more than 16384 bytes, `stopped` that the webhook
-- gets no more deliveries.
CREATE TABLE dragoman.push_configs (
    config bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task bigint NOT NULL,
    due_ms bigint,
    claimed bigint,
    host integer NOT NULL,
    retries boolean NOT NULL DEFAULT false,
    stopped boolean NOT NULL DEFAULT false,
    large boolean NOT NULL DEFAULT false,
    claimant text COLLATE "C",
    id text COLLATE "C" NOT NULL,
    settings bytea NOT NULL,
    UNIQUE (task, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX push_configs_due ON dragoman.push_configs (host, large, due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX push_configs_next ON dragoman.push_configs (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX push_configs_by_host ON dragoman.push_configs (host);
CREATE INDEX push_configs_claimed ON dragoman.push_configs (claimant) WHERE claimed IS NOT NULL;

-- Pending deliveries in their order; a number is never used again. Those that are `dead` wait for the operator.
CREATE TABLE dragoman.deliveries (
    delivery bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    config bigint NOT NULL,
    seq bigint NOT NULL,
    made_ms bigint NOT NULL,
    part bigint NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    kept boolean NOT NULL,
    dead boolean NOT NULL DEFAULT false,
    id text COLLATE "C" NOT NULL,
    dialect text COLLATE "C" NOT NULL,
    traceparent text COLLATE "C",
    reason text COLLATE "C" NOT NULL DEFAULT '',
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX deliveries_by_config ON dragoman.deliveries (config, dead, delivery);
CREATE INDEX deliveries_dead ON dragoman.deliveries (delivery) WHERE dead;

-- Deliveries that arrived, kept for a while for operators. `delivery` is the number that it had, `config_id` the id of its
-- webhook, which may be gone. `attempts` counts the failed ones before it arrived, `reason` says why the last of them failed.
-- `bytes` and `digest` are those of the body.
CREATE TABLE dragoman.receipts (
    delivery bigint PRIMARY KEY,
    task bigint NOT NULL,
    seq bigint NOT NULL,
    part bigint NOT NULL,
    made_ms bigint NOT NULL,
    arrived_ms bigint NOT NULL,
    took_ms bigint NOT NULL,
    bytes bigint NOT NULL,
    attempts integer NOT NULL,
    status integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    config_id text COLLATE "C" NOT NULL,
    url text COLLATE "C" NOT NULL,
    dialect text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    digest bytea NOT NULL
);
CREATE INDEX receipts_by_task ON dragoman.receipts (task, delivery);
CREATE INDEX receipts_by_age ON dragoman.receipts (arrived_ms);
