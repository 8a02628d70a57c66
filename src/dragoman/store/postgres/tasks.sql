-- The statements about tasks, their logs and the calls that made them. Positional values are in the order of their numbers.
-- The writes of a batch come as JSON, and their bytes in arrays beside it, both sorted by the ids of the tasks, so that batches
-- that meet never wait in a circle. An array for each column would cost both sides several times as much.
-- `= ANY (ARRAY[x])` finds a row by its index whatever the planner believes about the size of the table: a plan is made once,
-- often when the table is still empty.

-- name: find_scope
-- The number of an owner with an agent.
SELECT scope FROM dragoman.scopes WHERE owner = $1 AND agent = $2;

-- name: add_scope
-- Give an owner with an agent its number, unless it has one.
INSERT INTO dragoman.scopes (owner, agent) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING scope;

-- name: write
-- New tasks (those with a scope) and appends: row, log, snapshot, remembered call and files. A task is made unless its id is
-- taken. The update is the guard of every append (invariants 4 and 5): not terminal, the run's own epoch, the seq, or the
-- state and epoch, on which the caller decided, the webhooks for which it rendered, not made before, and not changed since
-- this statement began to look. Whether it was made before is seen in the log, behind the seq that the writer has read, or,
-- without events, in the row. `lease_act` is what becomes of a worker's lease: 0 it goes on, 1 it is granted, 2 it has run out, 3 it goes on
-- after a single word; the statement undoes itself if the lease changes at the same moment. The writer of a single word gets
-- what it has missed, if that is little, since it may follow what other replicas wrote. `body` is the head of a new task, or the snapshot after an append. $10 is what those that end
-- their tasks have used. The result has a row for
-- each write, with the task as it was before: `task` is null unless the write was made. A call that another transaction
-- remembers at the same moment ends this one with an error.
WITH v AS (
    SELECT * FROM ROWS FROM (
        json_to_recordset($1::json) AS (place int, id text, events int, state smallint, status_ms bigint, holder text,
            files boolean, write bigint, read_seq bigint, key bytea, digest bytea, expires_ms bigint,
            scope int, allowed boolean, agent text, context text, epoch int, pushed boolean, parent text,
            deadline_ms bigint, dialect text, text text, key_id text, team text,
            ends_lease boolean, keeper text, offered_until_ms bigint, run_epoch int, expected_seq bigint,
            expected_epoch int, webhooks int,
            to_worker boolean, lease_act smallint, lease_token text, lease_version int, lease_reports int, lease_confirmed int,
            lease_questions int, lease_over boolean, lease_ms bigint, lease_deadline_ms bigint, lease text, lease_agent text,
            dated boolean,
            instead_of text, title text),
        unnest($2::bytea[], $3::bytea[])
    ) AS v (place, id, events, state, status_ms, holder, files, write, read_seq, key, digest, expires_ms,
        scope, allowed, agent, context, epoch, pushed, parent, deadline_ms, dialect, text, key_id, team,
        ends_lease, keeper, offered_until_ms, run_epoch, expected_seq, expected_epoch, webhooks,
        to_worker, lease_act, lease_token, lease_version, lease_reports, lease_confirmed, lease_questions, lease_over, lease_ms,
        lease_deadline_ms, lease, lease_agent, dated,
        instead_of, title, page, body)
), cur AS MATERIALIZED (
    SELECT v.*, w.token AS known_token, w.version AS known_version, w.reports AS known_reports, w.over AS known_over,
        w.runs AS lease_runs, m.missed, CASE WHEN v.to_worker AND w.runs THEN coalesce(v.holder, 'worker') ELSE v.holder END
            AS leases, t.task, t.scope AS old_scope, t.state AS old_state, t.seq AS old_seq, t.epoch AS old_epoch, t.leased,
        t.webhooks_version, coalesce(e.last_seq, t.bare_seq) AS earlier_seq, coalesce(e.epoch, t.bare_epoch) AS earlier_epoch,
        c.task_id AS call_task, c.digest AS call_digest, c.seq AS call_seq, c.answer AS call_answer
    FROM v
    LEFT JOIN LATERAL (SELECT t.task, t.scope, t.state, t.seq, t.epoch, t.holder IS NOT NULL AS leased, t.webhooks_version,
            CASE WHEN t.bare_write = v.write THEN t.bare_seq END AS bare_seq, t.bare_epoch, t.files
        FROM dragoman.tasks t WHERE t.id = v.id LIMIT 1) t ON true
    LEFT JOIN LATERAL (SELECT p.last_seq, p.epoch FROM dragoman.pages p
        WHERE t.seq > v.read_seq AND p.task = t.task AND p.first_seq > v.read_seq AND p.write = v.write LIMIT 1) e ON true
    LEFT JOIN LATERAL (SELECT c.* FROM dragoman.calls c WHERE c.key = v.key AND c.expires_ms > $4
        AND (v.instead_of IS NULL OR c.task_id IS DISTINCT FROM v.instead_of) LIMIT 1) c ON true
    LEFT JOIN LATERAL (SELECT w.token, w.version, w.reports, w.over,
            NOT w.over AND w.until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS runs
        FROM dragoman.worker_leases w WHERE (v.lease_act IS NOT NULL OR v.to_worker) AND w.task = t.task LIMIT 1) w ON true
    LEFT JOIN LATERAL (SELECT array_agg(p.events ORDER BY p.first_seq) AS missed FROM dragoman.pages p
        WHERE v.lease_act = 3 AND t.seq > v.read_seq AND t.seq - v.read_seq <= 32 AND NOT t.files
            AND p.task = t.task AND p.first_seq > v.read_seq) m ON true
), made AS (
    INSERT INTO dragoman.tasks (id, scope, agent, context, state, status_ms, seq, epoch, holder, log_bytes, files, head,
        pushed, parent, deadline_ms, dialect, text, title, key, team)
    SELECT id, scope, agent, context, state, status_ms, events, epoch, holder, octet_length(page), files, body, pushed,
        parent, deadline_ms, dialect, text, title, key_id, team
    FROM cur WHERE scope IS NOT NULL AND task IS NULL AND call_digest IS NULL AND allowed
    RETURNING task, id
), moved AS (
    UPDATE dragoman.tasks t SET seq = t.seq + cur.events, state = cur.state,
        status_ms = greatest(t.status_ms, cur.status_ms),
        epoch = t.epoch + (cur.leases IS NOT NULL)::int,
        holder = CASE WHEN cur.ends_lease THEN NULL ELSE coalesce(cur.leases, t.holder) END,
        delivered = t.delivered + (cur.lease_act IS NOT DISTINCT FROM 1)::int,
        log_bytes = CASE WHEN cur.body IS NULL THEN t.log_bytes + octet_length(cur.page) ELSE 0 END,
        files = t.files OR cur.files,
        title = coalesce(cur.title, t.title),
        keeper = CASE WHEN cur.ends_lease THEN cur.keeper ELSE t.keeper END,
        offered_until_ms = CASE WHEN cur.leases IS NULL AND NOT cur.ends_lease AND cur.run_epoch IS NULL
            THEN t.offered_until_ms ELSE cur.offered_until_ms END,
        bare_write = CASE WHEN cur.events = 0 THEN cur.write ELSE t.bare_write END,
        bare_seq = CASE WHEN cur.events = 0 THEN t.seq ELSE t.bare_seq END,
        bare_epoch = CASE WHEN cur.events = 0 THEN t.epoch + (cur.leases IS NOT NULL)::int ELSE t.bare_epoch END
    FROM cur
    WHERE cur.scope IS NULL AND t.task = ANY (ARRAY[cur.task]) AND t.seq = cur.old_seq AND t.state < 4
        AND (cur.run_epoch IS NULL OR (t.epoch = cur.run_epoch AND t.holder IS NOT NULL))
        AND (cur.expected_seq IS NULL OR t.seq = cur.expected_seq)
        AND (cur.expected_epoch IS NULL OR (t.epoch = cur.expected_epoch AND t.state = cur.state))
        AND (t.bare_write = cur.write) IS NOT TRUE
        AND (cur.webhooks IS NULL OR t.webhooks_version = cur.webhooks)
        AND cur.earlier_seq IS NULL AND cur.call_digest IS NULL
        AND CASE cur.lease_act
            WHEN 0 THEN cur.lease_runs AND cur.known_token = cur.lease_token AND cur.known_version + 1 = cur.lease_version
                AND cur.known_reports <= cur.lease_reports
            WHEN 3 THEN cur.lease_runs AND cur.known_token = cur.lease_token AND cur.known_version = cur.lease_version
                AND (cur.lease_reports = 0 OR cur.known_reports < cur.lease_reports)
                AND cur.known_reports >= cur.lease_confirmed AND cur.old_seq >= cur.read_seq
                AND (cur.dated IS NULL OR t.status_ms <= cur.status_ms)
            WHEN 1 THEN cur.lease_runs IS NOT TRUE
            WHEN 2 THEN NOT cur.known_over AND NOT cur.lease_runs AND cur.known_token = cur.lease_token
            ELSE true END
    RETURNING cur.place, t.task, t.seq, t.epoch, t.state, cur.old_scope AS scope, t.context, cur.old_state, cur.id, cur.events,
        cur.page, cur.body AS record, cur.write, cur.key, cur.digest, cur.expires_ms, t.log_bytes
), holding AS MATERIALIZED (
    SELECT h.*, l.task AS locked, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms
    FROM (SELECT m.task, m.state, cur.lease_act, cur.lease_token, cur.lease_version, cur.lease_reports, cur.lease_questions,
            cur.lease_over, cur.lease_ms, cur.lease_deadline_ms, cur.lease, cur.lease_agent, cur.known_version, cur.known_reports
        FROM moved m JOIN cur USING (place) WHERE cur.lease_act IS NOT NULL ORDER BY m.id) h
    LEFT JOIN LATERAL (SELECT w.task FROM dragoman.worker_leases w WHERE w.task = h.task LIMIT 1 FOR UPDATE) l ON true
), granted AS (
    INSERT INTO dragoman.worker_leases AS w (task, until_ms, due_ms, deadline_ms, version, reports, questions, agent, token, lease)
    SELECT task, ms + lease_ms, ms + lease_deadline_ms, lease_deadline_ms, lease_version, lease_reports, lease_questions, lease_agent, lease_token, lease
    FROM holding WHERE lease_act = 1
    ON CONFLICT (task) DO UPDATE SET until_ms = excluded.until_ms, due_ms = excluded.due_ms, deadline_ms = excluded.deadline_ms,
        version = excluded.version, reports = excluded.reports, questions = excluded.questions, over = false, agent = excluded.agent,
        token = excluded.token, lease = excluded.lease
    WHERE w.over OR w.until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    RETURNING task
), changed AS (
    UPDATE dragoman.worker_leases w SET version = h.lease_version, questions = coalesce(h.lease_questions, w.questions),
        lease = coalesce(h.lease, w.lease), reports = greatest(h.lease_reports, w.reports),
        over = h.lease_over IS TRUE OR h.lease_act = 2, until_ms = CASE WHEN h.lease_over OR h.lease_act = 2 THEN h.ms + 600000 ELSE w.until_ms END,
        due_ms = CASE WHEN h.lease_over OR h.lease_act = 2 OR h.state IN (2, 3) THEN NULL ELSE w.due_ms END
    FROM holding h WHERE h.lease_act <> 1 AND w.task = ANY (ARRAY[h.task]) AND w.token = h.lease_token AND w.version = h.known_version
        AND w.reports = h.known_reports AND NOT w.over AND (w.until_ms > h.ms) = (h.lease_act <> 2)
    RETURNING w.task
), resuming AS MATERIALIZED (
    SELECT m.task FROM moved m JOIN cur USING (place) WHERE cur.to_worker AND cur.lease_runs
), resumed AS (
    UPDATE dragoman.worker_leases w SET due_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + w.deadline_ms
    FROM resuming r WHERE w.task = ANY (ARRAY[r.task]) AND NOT w.over
    RETURNING w.task
), done AS MATERIALIZED (
    SELECT place, made.task, events::bigint AS seq, epoch, state, scope, context, NULL::smallint AS old_state, id, events, page,
        NULL::bytea AS record, write, key, digest, expires_ms, NULL::bigint AS log_bytes
    FROM made JOIN cur USING (id) UNION ALL SELECT * FROM moved
), paged AS (
    INSERT INTO dragoman.pages (task, first_seq, last_seq, events, write, epoch)
    SELECT task, seq - events + 1, seq, page, write, epoch FROM done WHERE events > 0
), kept AS (
    INSERT INTO dragoman.snapshots (task, seq, record) SELECT task, seq, record FROM done WHERE record IS NOT NULL
    ON CONFLICT (task) DO UPDATE SET seq = excluded.seq, record = excluded.record
), called AS (
    INSERT INTO dragoman.calls (key, digest, task_id, seq, expires_ms)
    SELECT key, digest, id, seq, expires_ms FROM done WHERE key IS NOT NULL ORDER BY key
    ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, task_id = excluded.task_id, seq = excluded.seq,
        answer = excluded.answer, expires_ms = excluded.expires_ms
    WHERE calls.expires_ms <= $4 OR calls.task_id = (SELECT v.instead_of FROM v WHERE v.key = excluded.key)
    RETURNING key
), filed AS (
    INSERT INTO dragoman.files (task, file, bytes)
    SELECT done.task, f.file, f.bytes FROM unnest($5::int[], $6::bigint[], $7::bytea[]) AS f (place, file, bytes)
    JOIN done ON done.place = f.place
    ON CONFLICT DO NOTHING
)SUMSBOOKINGS
SELECT cur.place, done.task, done.seq, done.epoch, cur.earlier_seq, cur.earlier_epoch, cur.call_task, cur.call_digest,
    cur.call_seq, cur.call_answer, cur.old_state, cur.old_seq, cur.old_epoch, cur.leased, cur.webhooks_version,
    cur.lease_runs AND cur.known_token = cur.lease_token, cur.missed, done.log_bytes,
    1 / ((SELECT count(*) FROM holding) = (SELECT count(*) FROM granted) + (SELECT count(*) FROM changed))::int,
    1 / ((SELECT count(*) FROM resuming) = (SELECT count(*) FROM resumed))::int,
    1 / ((SELECT count(*) FROM done WHERE key IS NOT NULL) = (SELECT count(*) FROM called))::int BOOKED
FROM cur LEFT JOIN done USING (place)
WHERE true OR num_nulls($4::bigint, $5::int[], $6::bigint[], $7::bytea[], $10::json) = 0;

-- name: write_usual
-- The same for a batch without files and workers' leases, in which no append repeats a call. It makes what nothing stands in the
-- way of, and returns that alone: `write` then makes the rest, or says why not. This one looks neither for the answer to a call
-- nor for an earlier attempt at a write: a new task whose call is remembered is left out, and so is an append if anything stands
-- behind its `read_seq`. A new task whose id is taken ends it with an error. To start a statement costs as much as the rows of
-- twenty writes, and it costs 0.7 of `write` for a single write, 0.8 for ten.
-- `new` are the parts for new tasks, `old` for appends, `both` for batches with both, `ends` for appends with a snapshot or usage:
-- each stands between its name with a colon behind and before. SOURCE is where a form has what it made. The last line gives a
-- type to the values that it does not use.
WITH v AS (
    SELECT * FROM ROWS FROM (
        json_to_recordset($1::json) AS (place int, id text, events int, state smallint, status_ms bigint, holder text,
            write bigint, title text,
            /*new:*/ scope int, agent text, context text, epoch int, pushed boolean, parent text, deadline_ms bigint,
            dialect text, text text, key_id text, team text, key bytea, digest bytea, expires_ms bigint /*:new*/
            /*both:*/ , /*:both*/
            /*old:*/ read_seq bigint, ends_lease boolean, keeper text, offered_until_ms bigint, run_epoch int,
            expected_seq bigint, expected_epoch int, webhooks int /*:old*/),
        unnest($2::bytea[], $3::bytea[])
    ) AS v (place, id, events, state, status_ms, holder, write, title,
        /*new:*/ scope, agent, context, epoch, pushed, parent, deadline_ms, dialect, text, key_id, team, key, digest, expires_ms /*:new*/
        /*both:*/ , /*:both*/
        /*old:*/ read_seq, ends_lease, keeper, offered_until_ms, run_epoch, expected_seq, expected_epoch, webhooks /*:old*/,
        page, body)
/*new:*/ ), called AS (
    INSERT INTO dragoman.calls (key, digest, task_id, seq, expires_ms)
    SELECT key, digest, id, events, expires_ms FROM v WHERE key IS NOT NULL ORDER BY key
    ON CONFLICT DO NOTHING RETURNING task_id
), fresh AS MATERIALIZED (
    SELECT nextval('dragoman.tasks_task_seq') AS task, v.*, events::bigint AS seq, NULL::smallint AS old_state, NULL::bytea AS record
    FROM v WHERE /*both:*/ scope IS NOT NULL AND /*:both*/ (key IS NULL OR id IN (SELECT task_id FROM called))
), made AS (
    INSERT INTO dragoman.tasks (task, id, scope, agent, context, state, status_ms, seq, epoch, holder, log_bytes, files, head,
        pushed, parent, deadline_ms, dialect, text, title, key, team)
    SELECT task, id, scope, agent, context, state, status_ms, events, epoch, holder, octet_length(page), false, body, pushed,
        parent, deadline_ms, dialect, text, title, key_id, team
    FROM fresh /*:new*/
/*old:*/ ), moved AS (
    UPDATE dragoman.tasks t SET seq = t.seq + v.events, state = v.state, status_ms = greatest(t.status_ms, v.status_ms),
        epoch = t.epoch + (v.holder IS NOT NULL)::int,
        holder = CASE WHEN v.ends_lease THEN NULL ELSE coalesce(v.holder, t.holder) END,
        log_bytes = CASE WHEN v.body IS NULL THEN t.log_bytes + octet_length(v.page) ELSE 0 END,
        title = coalesce(v.title, t.title),
        keeper = CASE WHEN v.ends_lease THEN v.keeper ELSE t.keeper END,
        offered_until_ms = CASE WHEN v.holder IS NULL AND NOT v.ends_lease AND v.run_epoch IS NULL
            THEN t.offered_until_ms ELSE v.offered_until_ms END,
        bare_write = CASE WHEN v.events = 0 THEN v.write ELSE t.bare_write END,
        bare_seq = CASE WHEN v.events = 0 THEN t.seq ELSE t.bare_seq END,
        bare_epoch = CASE WHEN v.events = 0 THEN t.epoch + (v.holder IS NOT NULL)::int ELSE t.bare_epoch END
    FROM v, dragoman.tasks o
    WHERE /*new:*/ v.scope IS NULL AND /*:new*/ o.id = ANY (ARRAY[v.id]) AND t.task = ANY (ARRAY[o.task]) AND t.seq <= o.seq AND t.state < 4
        AND (v.write IS NULL OR t.seq <= v.read_seq)
        AND (v.run_epoch IS NULL OR (t.epoch = v.run_epoch AND t.holder IS NOT NULL))
        AND (v.expected_seq IS NULL OR t.seq <= v.expected_seq AND t.seq >= v.expected_seq)
        AND (v.expected_epoch IS NULL OR (t.epoch = v.expected_epoch AND t.state = v.state))
        AND (t.bare_write = v.write) IS NOT TRUE
        AND (v.webhooks IS NULL OR t.webhooks_version = v.webhooks)
    RETURNING v.place, t.task, t.seq, t.epoch, t.state, o.scope, t.context, o.state AS old_state, v.events, v.page, v.write,
        v.body AS record /*:old*/
/*both:*/ ), done AS MATERIALIZED (
    SELECT * FROM moved
    UNION ALL SELECT place, task, seq, epoch, state, scope, context, old_state, events, page, write, record FROM fresh /*:both*/
), paged AS (
    INSERT INTO dragoman.pages (task, first_seq, last_seq, events, write, epoch)
    SELECT task, seq - events + 1, seq, page, write, epoch FROM SOURCE WHERE events > 0
/*ends:*/ ), kept AS (
    INSERT INTO dragoman.snapshots (task, seq, record) SELECT task, seq, record FROM moved WHERE record IS NOT NULL
    ON CONFLICT (task) DO UPDATE SET seq = excluded.seq, record = excluded.record /*:ends*/
)SUMSBOOKINGS
SELECT place, task, seq, epoch BOOKED FROM SOURCE
WHERE true OR num_nulls($4::bigint, $5::int[], $6::bigint[], $7::bytea[], $8::text, $10::json) = 0;

-- name: sums
-- The part of both, in the place of SUMS, that counts tasks by their states, and what those that end have used.
, counted AS (
    INSERT INTO dragoman.counts (scope, context, replica, lane, n0, n1, n2, n3, n4, n5, n6, n7)
    SELECT scope, number, $8, $9, sum((state = 0)::int - (was = 0)::int), sum((state = 1)::int - (was = 1)::int),
        sum((state = 2)::int - (was = 2)::int), sum((state = 3)::int - (was = 3)::int),
        sum((state = 4)::int - (was = 4)::int), sum((state = 5)::int - (was = 5)::int),
        sum((state = 6)::int - (was = 6)::int), sum((state = 7)::int - (was = 7)::int)
    FROM (SELECT scope, context, state, coalesce(old_state, -1) AS was FROM SOURCE) d CROSS JOIN LATERAL (
        SELECT 0 AS number
        UNION ALL SELECT k.number FROM dragoman.counted_contexts k WHERE k.scope = d.scope AND k.context = d.context) k
    WHERE state <> was GROUP BY scope, number ORDER BY scope, number
    ON CONFLICT (scope, context, replica, lane) DO UPDATE SET n0 = counts.n0 + excluded.n0, n1 = counts.n1 + excluded.n1,
        n2 = counts.n2 + excluded.n2, n3 = counts.n3 + excluded.n3, n4 = counts.n4 + excluded.n4,
        n5 = counts.n5 + excluded.n5, n6 = counts.n6 + excluded.n6, n7 = counts.n7 + excluded.n7
)/*ends:*/, used AS (
    INSERT INTO dragoman.usage_days (day, scope, model, replica, lane, runs, tasks, messages, reported,
        input_tokens, output_tokens, total_tokens, duration_ms, cached_tokens, uncertain, waited_ms)
    SELECT u.day, d.scope, u.model, $8, $9, sum(u.runs), sum(u.tasks), sum(u.messages), sum(u.reported),
        least(sum(u.input_tokens), 9007199254740991), least(sum(u.output_tokens), 9007199254740991),
        least(sum(u.total_tokens), 9007199254740991), sum(u.duration_ms),
        least(sum(u.cached_tokens), 9007199254740991), least(sum(u.uncertain), 9007199254740991), sum(u.waited_ms)
    FROM json_to_recordset($10::json) AS u (place int, day int, model text, runs int, tasks int, messages int, reported int,
        input_tokens bigint, output_tokens bigint, total_tokens bigint, duration_ms bigint, cached_tokens bigint,
        uncertain bigint, waited_ms bigint)
    JOIN SOURCE d ON d.place = u.place
    GROUP BY u.day, d.scope, u.model ORDER BY u.day, d.scope, u.model
    ON CONFLICT (day, scope, model, replica, lane) DO UPDATE SET runs = usage_days.runs + excluded.runs,
        tasks = usage_days.tasks + excluded.tasks, messages = usage_days.messages + excluded.messages,
        reported = usage_days.reported + excluded.reported,
        input_tokens = least(usage_days.input_tokens + excluded.input_tokens, 9007199254740991),
        output_tokens = least(usage_days.output_tokens + excluded.output_tokens, 9007199254740991),
        total_tokens = least(usage_days.total_tokens + excluded.total_tokens, 9007199254740991),
        duration_ms = usage_days.duration_ms + excluded.duration_ms,
        cached_tokens = least(usage_days.cached_tokens + excluded.cached_tokens, 9007199254740991),
        uncertain = least(usage_days.uncertain + excluded.uncertain, 9007199254740991),
        waited_ms = usage_days.waited_ms + excluded.waited_ms
)/*:ends*/;

-- name: bookings
-- The part of `write`, in the place of BOOKINGS, that books in accounts of budgets: what new tasks claim and those that end are
-- charged, $11. Each account is changed once, in the row of this lane, which is there and for which nobody else waits. `most` is
-- the limit of an account, if a task claims of it: then the row is left out if that goes beyond what this lane was granted by
-- that limit, and the statement undoes itself.
, booking AS MATERIALIZED (
    SELECT k.account, sum(k.reserved) AS reserved, sum(k.used) AS used, max(k.most) AS most
    FROM json_to_recordset($11::json) AS k (place int, account text, reserved numeric, used numeric, most text)
    JOIN SOURCE d ON d.place = k.place GROUP BY k.account ORDER BY k.account
), booked AS (
    UPDATE dragoman.budget_balances b SET used = (b.used::numeric + n.used)::text, reserved = (b.reserved::numeric + n.reserved)::text
    FROM booking n
    WHERE b.account = ANY (ARRAY[n.account]) AND b.replica = $8 AND b.lane = $9::smallint AND (n.most IS NULL OR (b.most = n.most
        AND b.used::numeric + b.reserved::numeric + n.used + n.reserved <= b.granted::numeric))
    RETURNING b.account
);

-- name: lessons
-- The part after that, if tasks that end show what those of their agents cost: the latest costs come first.
, learnt AS (
    INSERT INTO dragoman.budget_lessons AS l (agent, unit, costs)
    SELECT k.agent, k.unit, (array_agg(k.used ORDER BY k.place DESC))[1:100]
    FROM json_to_recordset($11::json) AS k (place int, used text, agent text, unit text)
    JOIN SOURCE d ON d.place = k.place WHERE k.agent IS NOT NULL GROUP BY k.agent, k.unit ORDER BY k.agent, k.unit
    ON CONFLICT (agent, unit) DO UPDATE SET costs = (excluded.costs || l.costs)[1:100]
);

-- name: booked
-- The part of `write`, in the place of BOOKED, that undoes it if a claim goes beyond its limit.
, 1 / ((SELECT count(*) FROM booking) = (SELECT count(*) FROM booked))::int;

-- name: add_balances
-- Make the rows of a lane for accounts, unless they are there. Nothing is granted to them.
INSERT INTO dragoman.budget_balances (account, replica, lane, granted, used, reserved)
SELECT v.account, $2, $3::smallint, '0', '0', '0' FROM unnest($1::text[]) AS v (account) ORDER BY v.account
ON CONFLICT DO NOTHING;

-- name: open_accounts
-- Open accounts, unless they are open, and hold them until the end of the transaction: nobody else grants parts of them.
-- Returns the limits by which parts were granted last.
INSERT INTO dragoman.budget_accounts AS b (account, budget, member, owner, unit, ends_ms, expires_ms, warned, told)
SELECT account, budget, member, owner, unit, ends_ms, expires_ms, 0, 0
FROM json_to_recordset($1::json) AS k (account text, budget text, member text, owner text, unit text, ends_ms bigint,
    expires_ms bigint) ORDER BY account
ON CONFLICT (account) DO UPDATE SET expires_ms = greatest(b.expires_ms, excluded.expires_ms)
RETURNING account, most;

-- name: read_balances
-- The balances of accounts.
SELECT account, replica, lane, granted, used, reserved FROM dragoman.budget_balances WHERE account = ANY ($1::text[]);

-- name: lock_balances
-- The same, and nobody else changes them until the end of the transaction.
SELECT account, replica, lane, granted, used, reserved FROM dragoman.budget_balances WHERE account = ANY ($1::text[])
ORDER BY account, replica, lane FOR UPDATE;

-- name: grant_balances
-- Put what lanes of replicas are granted of accounts, by a limit.
INSERT INTO dragoman.budget_balances (account, replica, lane, granted, most, used, reserved)
SELECT account, replica, lane, granted, most, '0', '0' FROM json_to_recordset($1::json) AS k (account text, replica text,
    lane smallint, granted text, most text) ORDER BY account, replica, lane
ON CONFLICT (account, replica, lane) DO UPDATE SET granted = excluded.granted, most = excluded.most;

-- name: limit_accounts
-- Note the limits by which parts of accounts are granted from now on.
UPDATE dragoman.budget_accounts a SET most = k.most
FROM json_to_recordset($1::json) AS k (account text, most text) WHERE a.account = k.account;

-- name: lock_task
-- Keep everybody else from changing a task until the end of the transaction.
SELECT task FROM dragoman.tasks WHERE id = $1 FOR NO KEY UPDATE;

-- name: find_call
-- An earlier call with this key that has not expired.
SELECT task_id, digest, seq, answer FROM dragoman.calls WHERE key = $1 AND expires_ms > $2;

-- name: remember
-- Remember an answer under a key, and count what its run used. Returns nothing if the key has one that has not expired.
WITH kept AS (
    INSERT INTO dragoman.calls (key, digest, seq, answer, expires_ms) VALUES ($1, $2, 0, $3, $4)
    ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, task_id = NULL, seq = 0, answer = excluded.answer,
        expires_ms = excluded.expires_ms
    WHERE calls.expires_ms <= $5 OR calls.task_id = $6
    RETURNING true
), used AS (
    INSERT INTO dragoman.usage_days (day, scope, model, replica, lane, runs, tasks, messages, reported,
        input_tokens, output_tokens, total_tokens, duration_ms, cached_tokens, uncertain, waited_ms)
    SELECT u.day, u.scope, u.model, $8, $9::smallint, u.runs, u.tasks, u.messages, u.reported,
        u.input_tokens, u.output_tokens, u.total_tokens, u.duration_ms, u.cached_tokens, u.uncertain, u.waited_ms
    FROM json_to_recordset($7::json) AS u (day int, scope int, model text, runs int, tasks int, messages int, reported int,
        input_tokens bigint, output_tokens bigint, total_tokens bigint, duration_ms bigint, cached_tokens bigint,
        uncertain bigint, waited_ms bigint)
    WHERE EXISTS (SELECT FROM kept) ORDER BY u.model
    ON CONFLICT (day, scope, model, replica, lane) DO UPDATE SET runs = usage_days.runs + excluded.runs,
        tasks = usage_days.tasks + excluded.tasks, messages = usage_days.messages + excluded.messages,
        reported = usage_days.reported + excluded.reported,
        input_tokens = least(usage_days.input_tokens + excluded.input_tokens, 9007199254740991),
        output_tokens = least(usage_days.output_tokens + excluded.output_tokens, 9007199254740991),
        total_tokens = least(usage_days.total_tokens + excluded.total_tokens, 9007199254740991),
        duration_ms = usage_days.duration_ms + excluded.duration_ms,
        cached_tokens = least(usage_days.cached_tokens + excluded.cached_tokens, 9007199254740991),
        uncertain = least(usage_days.uncertain + excluded.uncertain, 9007199254740991),
        waited_ms = usage_days.waited_ms + excluded.waited_ms
)
SELECT true FROM kept;

-- name: count_answers
-- Count what direct answers that are not remembered used.
INSERT INTO dragoman.usage_days (day, scope, model, replica, lane, runs, tasks, messages, reported,
    input_tokens, output_tokens, total_tokens, duration_ms, cached_tokens, uncertain, waited_ms)
SELECT u.day, u.scope, u.model, $2, $3::smallint, sum(u.runs), sum(u.tasks), sum(u.messages), sum(u.reported),
    least(sum(u.input_tokens), 9007199254740991), least(sum(u.output_tokens), 9007199254740991),
    least(sum(u.total_tokens), 9007199254740991), sum(u.duration_ms),
    least(sum(u.cached_tokens), 9007199254740991), least(sum(u.uncertain), 9007199254740991), sum(u.waited_ms)
FROM json_to_recordset($1::json) AS u (day int, scope int, model text, runs int, tasks int, messages int, reported int,
    input_tokens bigint, output_tokens bigint, total_tokens bigint, duration_ms bigint, cached_tokens bigint,
    uncertain bigint, waited_ms bigint)
GROUP BY u.day, u.scope, u.model ORDER BY u.day, u.scope, u.model
ON CONFLICT (day, scope, model, replica, lane) DO UPDATE SET runs = usage_days.runs + excluded.runs,
    tasks = usage_days.tasks + excluded.tasks, messages = usage_days.messages + excluded.messages,
    reported = usage_days.reported + excluded.reported,
    input_tokens = least(usage_days.input_tokens + excluded.input_tokens, 9007199254740991),
    output_tokens = least(usage_days.output_tokens + excluded.output_tokens, 9007199254740991),
    total_tokens = least(usage_days.total_tokens + excluded.total_tokens, 9007199254740991),
    duration_ms = usage_days.duration_ms + excluded.duration_ms,
    cached_tokens = least(usage_days.cached_tokens + excluded.cached_tokens, 9007199254740991),
    uncertain = least(usage_days.uncertain + excluded.uncertain, 9007199254740991),
    waited_ms = usage_days.waited_ms + excluded.waited_ms;

-- name: request_cancel
-- Mark that the task's run shall stop, unless the task has ended.
UPDATE dragoman.tasks SET cancel = true WHERE id = $1 AND state < 4 AND NOT cancel;

-- name: probe
-- A meaningless write, to see whether writes work.
INSERT INTO dragoman.probes (probe, written_ms) VALUES ($1, $2) ON CONFLICT (probe) DO UPDATE SET written_ms = $2;

-- name: load
-- A task's row, its snapshot if it has one, and the pages after the snapshot, which ends where a page ends.
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files, t.head, t.pushed, t.keeper,
    t.offered_until_ms, t.webhooks_version, t.delivered, s.record, p.firsts, p.pages
FROM dragoman.tasks t LEFT JOIN dragoman.snapshots s ON s.task = t.task
CROSS JOIN LATERAL (
    SELECT array_agg(p.first_seq ORDER BY p.first_seq) AS firsts, array_agg(p.events ORDER BY p.first_seq) AS pages
    FROM dragoman.pages p WHERE p.task = t.task AND p.first_seq > coalesce(s.seq, 0)) p
WHERE t.id = $1;

-- name: load_after
-- The same without the snapshot, whose size comes last, and with the pages behind seq $2 alone.
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files, t.head, t.pushed, t.keeper,
    t.offered_until_ms, t.webhooks_version, t.delivered, NULL::bytea AS record, p.firsts, p.pages, (
        SELECT octet_length(s.record) FROM dragoman.snapshots s WHERE s.task = t.task) AS snapshot_bytes
FROM dragoman.tasks t CROSS JOIN LATERAL (
    SELECT array_agg(p.first_seq ORDER BY p.first_seq) AS firsts, array_agg(p.events ORDER BY p.first_seq) AS pages
    FROM dragoman.pages p WHERE p.task = t.task AND p.first_seq > $2) p
WHERE t.id = $1;

-- name: load_snapshot
-- The same without the pages.
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files, t.head, t.pushed, t.keeper,
    t.offered_until_ms, t.webhooks_version, t.delivered, s.record, NULL::bigint[] AS firsts, NULL::bytea[] AS pages
FROM dragoman.tasks t LEFT JOIN dragoman.snapshots s ON s.task = t.task
WHERE t.id = $1;

-- name: find
-- Many tasks with their pages by their ids, each only if it is a task of a range of owners with an agent, by the place of its request. The
-- last column is its size. A task of so many bytes or more has neither snapshot nor pages. Owner and agent are looked at
-- first, so that nothing else of another's task is touched.
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files, t.head, t.pushed, t.keeper,
    t.offered_until_ms, t.webhooks_version, t.delivered, CASE WHEN z.small THEN s.record END AS record, p.firsts, p.pages, v.place, z.size
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
    WITH ORDINALITY AS v (id, owner, last_owner, agent, bytes_max, place)
CROSS JOIN LATERAL (SELECT t.* FROM dragoman.tasks t JOIN dragoman.scopes o ON o.scope = t.scope
    WHERE t.id = v.id AND o.owner BETWEEN v.owner AND v.last_owner AND o.agent = v.agent LIMIT 1) t
LEFT JOIN LATERAL (SELECT s.seq, s.record FROM dragoman.snapshots s WHERE s.task = t.task LIMIT 1) s ON true
CROSS JOIN LATERAL (SELECT size, size < coalesce(v.bytes_max, size + 1) AS small FROM (
    SELECT t.log_bytes + coalesce(octet_length(s.record), 0) + CASE WHEN t.files THEN coalesce((
        SELECT sum(octet_length(f.bytes)) FROM dragoman.files f WHERE f.task = t.task), 0) ELSE 0 END AS size OFFSET 0) z
) z
CROSS JOIN LATERAL (
    SELECT array_agg(p.first_seq ORDER BY p.first_seq) AS firsts, array_agg(p.events ORDER BY p.first_seq) AS pages
    FROM dragoman.pages p WHERE z.small AND p.task = t.task AND p.first_seq > coalesce(s.seq, 0)) p;

-- name: load_many
-- The same for many tasks by their numbers, in the order of the array.
SELECT t.task, t.seq, t.epoch, t.state, t.status_ms, t.holder, t.cancel, t.log_bytes, t.files, t.head, t.pushed, t.keeper,
    t.offered_until_ms, t.webhooks_version, t.delivered, s.record, p.firsts, p.pages
FROM unnest($1::bigint[]) WITH ORDINALITY AS v (task, place)
CROSS JOIN LATERAL (SELECT * FROM dragoman.tasks t WHERE t.task = v.task LIMIT 1) t
LEFT JOIN LATERAL (SELECT * FROM dragoman.snapshots s WHERE s.task = v.task LIMIT 1) s ON true
CROSS JOIN LATERAL (
    SELECT array_agg(p.first_seq ORDER BY p.first_seq) AS firsts, array_agg(p.events ORDER BY p.first_seq) AS pages
    FROM dragoman.pages p WHERE p.task = v.task AND p.first_seq > coalesce(s.seq, 0)) p
ORDER BY v.place;

-- name: size
-- The size in bytes of a task's snapshot, the pages after it and its files. No content is read.
SELECT t.log_bytes + coalesce((SELECT octet_length(record) FROM dragoman.snapshots s WHERE s.task = t.task), 0)
    + CASE WHEN t.files THEN coalesce((SELECT sum(octet_length(bytes)) FROM dragoman.files f WHERE f.task = t.task), 0)
      ELSE 0 END
FROM dragoman.tasks t WHERE t.id = $1;

-- name: head
-- Head, seq, state and number of a task.
SELECT head, seq, state, task FROM dragoman.tasks WHERE id = $1;

-- name: row_facts
-- What the row of a task says beside its bytes, by its number.
SELECT t.id, o.owner, o.agent, t.context, t.dialect, t.parent, t.deadline_ms, t.status_ms
FROM dragoman.tasks t JOIN dragoman.scopes o ON o.scope = t.scope WHERE t.task = $1;

-- name: read
-- The next pages with events after seq $2 of task $1, in order: at most 256, and no more than it takes to have $3 bytes. `more`
-- says whether there are more.
WITH t AS (
    SELECT task, files FROM dragoman.tasks WHERE id = $1 AND seq > $2
), found AS MATERIALIZED (
    SELECT p.task, p.first_seq, octet_length(p.events) AS size FROM t CROSS JOIN LATERAL (
        SELECT * FROM dragoman.pages p WHERE p.task = t.task AND p.first_seq >= coalesce((
            SELECT max(b.first_seq) FROM dragoman.pages b WHERE b.task = t.task AND b.first_seq <= $2 + 1), 0)
        ORDER BY p.first_seq LIMIT 256) p
    WHERE p.last_seq > $2
), summed AS (
    SELECT *, sum(size) OVER (ORDER BY first_seq) - size AS before, count(*) OVER () = 256 AS more FROM found
)
SELECT p.first_seq, p.events, t.task, t.files, s.more, p.last_seq FROM t JOIN summed s ON s.before < $3
CROSS JOIN LATERAL (SELECT * FROM dragoman.pages p WHERE p.task = s.task AND p.first_seq = s.first_seq LIMIT 1) p
ORDER BY p.first_seq;

-- name: read_many
-- The pages with events after a seq of many tasks, by their ids and seqs, in the order of the array, each in order: no more
-- than it takes to have $3 bytes in all, and at most 64 of each task.
WITH v AS (
    SELECT v.place, t.* FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS v (id, after, place)
    CROSS JOIN LATERAL (SELECT t.id, t.task, t.files, v.after FROM dragoman.tasks t WHERE t.id = v.id AND t.seq > v.after
        LIMIT 1) t
), found AS MATERIALIZED (
    SELECT v.place, v.id, v.files, p.task, p.first_seq, octet_length(p.events) AS size FROM v CROSS JOIN LATERAL (
        SELECT * FROM dragoman.pages p WHERE p.task = v.task AND p.first_seq >= coalesce((
            SELECT max(b.first_seq) FROM dragoman.pages b WHERE b.task = v.task AND b.first_seq <= v.after + 1), 0)
        ORDER BY p.first_seq LIMIT 64) p
    WHERE p.last_seq > v.after
), summed AS (
    SELECT *, sum(size) OVER (ORDER BY place, first_seq) - size AS before FROM found
)
SELECT s.place, p.first_seq, p.events, s.task, s.files FROM summed s
CROSS JOIN LATERAL (SELECT * FROM dragoman.pages p WHERE p.task = s.task AND p.first_seq = s.first_seq LIMIT 1) p
WHERE s.before < $3 ORDER BY s.place, p.first_seq;

-- name: files
-- The bytes of some files of a task.
SELECT file, bytes FROM dragoman.files WHERE task = $1 AND file = ANY ($2::bigint[]);

-- name: lock_owners
-- Let nobody else make tasks of some owners with a quota, until the end of the transaction.
SELECT pg_advisory_xact_lock(1685217639, hashtext(owner)) FROM unnest($1::text[]) AS v (owner) ORDER BY hashtext(owner);

-- name: used
-- How many open tasks owners, or ranges of them, have, and how many tasks they made in a day.
SELECT v.owner, v.day,
    coalesce((SELECT sum(c.n0 + c.n1 + c.n2 + c.n3) FROM dragoman.scopes s JOIN dragoman.counts c USING (scope)
        WHERE s.owner BETWEEN v.owner AND v.last_owner AND c.context = 0), 0)::bigint,
    coalesce((SELECT q.tasks FROM dragoman.quota_days q WHERE q.day = v.day AND q.owner = v.owner), 0)
FROM unnest($1::text[], $2::text[], $3::int[]) AS v (owner, last_owner, day);

-- name: known_calls
-- Those of some keys that are remembered, each with its task.
SELECT key, task_id FROM dragoman.calls WHERE key = ANY ($1::bytea[]) AND expires_ms > $2;

-- name: count_days
-- Add to the tasks that owners made in a day.
INSERT INTO dragoman.quota_days (day, owner, tasks) SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[])
ON CONFLICT (day, owner) DO UPDATE SET tasks = quota_days.tasks + excluded.tasks;

-- name: claim
-- Lease to $1 at most $2 tasks, oldest first, that are queued, whose holder is dead, or that were offered until $3 at the
-- latest: tasks of the agents $4, or (null) of those that nobody alive serves. The latter wait $6 seconds: since somebody
-- served the agent, since the task got its state, and since the oldest of the living replicas started. Without $7 none that is
-- queued is claimed, and none ever that a worker has. Tasks that sleep are as those that were offered until they wake; with $8
-- only these are claimed, those first that woke first. Tasks that nobody has begun are offered until $5. A replica that is dead
-- claims nothing, not even from itself. Tasks that another transaction is changing are left alone, and those that one has just
-- changed: the epoch and the offer must be those that this statement saw first. Open tasks are read agent by agent, so that
-- those of other agents cost nothing. The order is that of the index of open tasks: by the number alone, the planner would walk
-- through all tasks. And a subquery locks each task by its number, since a join, or a plain condition on the state, would read
-- all open tasks.
WITH RECURSIVE holders (holder) AS (
    (SELECT t.holder FROM dragoman.tasks t WHERE t.state < 4 AND (t.state < 2 OR t.holder IS NOT NULL)
        AND t.holder IS NOT NULL ORDER BY t.holder LIMIT 1)
    UNION ALL
    SELECT (SELECT t.holder FROM dragoman.tasks t WHERE t.state < 4 AND (t.state < 2 OR t.holder IS NOT NULL)
        AND t.holder > h.holder ORDER BY t.holder LIMIT 1)
    FROM holders h WHERE h.holder IS NOT NULL
), agents (agent) AS (
    (SELECT s.agent FROM dragoman.scopes s WHERE $4::text[] IS NULL ORDER BY s.agent LIMIT 1)
    UNION ALL
    SELECT (SELECT s.agent FROM dragoman.scopes s WHERE s.agent > a.agent ORDER BY s.agent LIMIT 1)
    FROM agents a WHERE a.agent IS NOT NULL
), wanted (agent) AS MATERIALIZED (
    SELECT a.agent
    FROM dragoman.replicas r CROSS JOIN LATERAL (
        SELECT unnest($4::text[]) AS agent
        UNION ALL
        SELECT a.agent FROM agents a
        WHERE a.agent <> ALL (ARRAY(
            SELECT unnest(o.agents) FROM dragoman.replicas o
            WHERE NOT o.dead OR o.beats_until > clock_timestamp() - make_interval(secs => $6)
            UNION
            SELECT s.agent FROM dragoman.agents_seen s WHERE s.seen > clock_timestamp() - make_interval(secs => $6)))
            AND EXISTS (SELECT FROM dragoman.replicas o WHERE NOT o.dead AND o.beats_until > clock_timestamp()
                AND o.started <= clock_timestamp() - make_interval(secs => $6))) a
    WHERE r.id = $1 AND NOT r.dead AND r.beats_until > clock_timestamp()
), dead (holder) AS MATERIALIZED (
    SELECT h.holder FROM holders h
    WHERE NOT $8 AND h.holder IS NOT NULL AND h.holder NOT IN ('worker', 'asleep', 'aside') AND NOT EXISTS (SELECT FROM dragoman.replicas r WHERE r.id = h.holder AND NOT r.dead)
), seen AS (
    SELECT q.task, q.epoch, q.offered_until_ms FROM wanted w CROSS JOIN LATERAL (
        SELECT t.task, t.epoch, t.offered_until_ms FROM dragoman.tasks t
        WHERE $7 AND NOT $8 AND t.state < 4 AND (t.state < 2 OR t.holder IS NOT NULL) AND t.holder IS NULL AND t.agent = w.agent
            AND ($4::text[] IS NOT NULL OR t.status_ms <= $3::bigint - $6::float8 * 1000)
        ORDER BY t.holder, t.agent, t.task LIMIT $2::int * 4) q
    UNION
    SELECT l.task, l.epoch, l.offered_until_ms FROM dead d CROSS JOIN wanted w CROSS JOIN LATERAL (
        SELECT t.task, t.epoch, t.offered_until_ms FROM dragoman.tasks t
        WHERE t.state < 4 AND (t.state < 2 OR t.holder IS NOT NULL) AND t.holder = d.holder AND t.agent = w.agent
            AND ($4::text[] IS NOT NULL OR t.status_ms <= $3::bigint - $6::float8 * 1000)
        ORDER BY t.holder, t.agent, t.task LIMIT $2::int * 4) l
    UNION
    SELECT o.task, o.epoch, o.offered_until_ms FROM (
        SELECT t.task, t.epoch, t.offered_until_ms FROM dragoman.tasks t
        WHERE t.state < 4 AND t.offered_until_ms IS NOT NULL AND t.offered_until_ms <= $3::bigint AND t.holder IS NOT NULL
            AND (NOT $8 OR t.holder IN ('asleep', 'aside')) AND t.agent IN (SELECT agent FROM wanted)
            AND ($4::text[] IS NOT NULL OR t.status_ms <= $3::bigint - $6::float8 * 1000)
        ORDER BY t.offered_until_ms LIMIT $2::int * 4) o
), mine AS MATERIALIZED (
    SELECT t.task FROM (SELECT * FROM seen ORDER BY CASE WHEN $8 THEN offered_until_ms ELSE task END OFFSET 0) seen CROSS JOIN LATERAL (
        SELECT t.task FROM dragoman.tasks t
        WHERE t.task = ANY (ARRAY[seen.task]) AND t.state + 0 < 4 AND (t.state < 2 OR t.holder IS NOT NULL)
            AND t.epoch = seen.epoch AND t.offered_until_ms IS NOT DISTINCT FROM seen.offered_until_ms
        FOR NO KEY UPDATE OF t SKIP LOCKED) t
    LIMIT $2
)
UPDATE dragoman.tasks t SET holder = $1, epoch = t.epoch + 1,
    offered_until_ms = CASE WHEN t.holder IS NULL OR t.offered_until_ms IS NOT NULL THEN $5::bigint END
FROM mine WHERE t.task = ANY (ARRAY[mine.task])
RETURNING t.task;
