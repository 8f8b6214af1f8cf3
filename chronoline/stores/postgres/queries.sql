-- One index can serve each statement, so that no statistics can make the planner take another; "Plans" in
-- docs/design/stores.md says why. Conditions are written so that they match that index alone:
--   by key:        "life + 0", which matches no partial index, and "topic = ANY (ARRAY[…])", which is no reason
--                  to read the key in its order: else all of it is read where the table is taken for empty.
--                  The topic comes with each key, not as one value: else the whole topic is read;
--   messages_due:  "topic + 0", "bucket + 0" and "life = 0";
--   messages_held, messages_owned: "topic + 0", "id || ''" and their CASE;
--   messages_dead: "topic + 0", "id || ''" and "life = 2".

-- name: insert_topic
-- Makes a topic; a taken name is a conflict.
INSERT INTO chronoline.topics (uid, name, settings) VALUES (%(uid)s, %(name)s, %(settings)s)
ON CONFLICT DO NOTHING RETURNING uid;

-- name: name_taken
-- Whether a topic of that name is there, or is still being dropped.
SELECT 1 FROM chronoline.topics WHERE name = %(name)s AND emptied_at IS NULL;

-- name: topic
-- A live topic by its uid.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM chronoline.topics WHERE uid = %(uid)s AND dropped_at IS NULL;

-- name: topic_named
-- A live topic by its name.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM chronoline.topics
WHERE name = %(name)s AND dropped_at IS NULL AND emptied_at IS NULL;

-- name: identity
-- The id of the store.
SELECT id FROM chronoline.identity;

-- name: topics
-- All live topics.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM chronoline.topics WHERE dropped_at IS NULL ORDER BY name;

-- name: unfinished_drops
-- Dropped topics whose names are not free yet.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM chronoline.topics
WHERE dropped_at IS NOT NULL AND emptied_at IS NULL ORDER BY name;

-- name: changed_topics
-- Live topics that were changed since they were created.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM chronoline.topics WHERE dropped_at IS NULL AND revision > 1 ORDER BY name;

-- name: change_topic
-- Changes the settings and the pause of a topic that has this revision.
UPDATE chronoline.topics SET
    settings = %(settings)s, paused_at = %(paused_at)s, paused_by = %(paused_by)s,
    pause_reason = %(pause_reason)s, revision = revision + 1
WHERE uid = %(uid)s AND dropped_at IS NULL AND revision = %(revision)s
RETURNING uid;

-- name: drop_topic
-- Drops a topic, for every process at once.
UPDATE chronoline.topics SET dropped_at = %(now)s WHERE uid = %(uid)s AND dropped_at IS NULL
RETURNING uid;

-- name: create
-- Puts messages on the timeline if their ids are free, or if they replace messages that the owner may cancel.
INSERT INTO chronoline.messages AS m
    (topic, bucket, stripe, id, ts, due, version, expires, producer_group, key, headers, body, digest)
SELECT t.uid, unnest(%(bucket)b::integer[]), unnest(%(stripe)b::smallint[]),
    unnest(%(id)b::text[]), unnest(%(due)b::bigint[]), unnest(%(due)b::bigint[]),
    greatest(%(now)s, t.floor + 1),
    unnest(%(expires)b::bigint[]), unnest(%(producer_group)b::text[]), unnest(%(key)b::bytea[]),
    unnest(%(headers)b::bytea[]), unnest(%(body)b::bytea[]), unnest(%(digest)b::bytea[])
FROM chronoline.topics t WHERE t.uid = %(topic)s AND t.dropped_at IS NULL
ON CONFLICT (topic, bucket, id) DO UPDATE SET
    life = 0, ts = excluded.ts, due = excluded.due, attempts = 0, expires = excluded.expires,
    version = greatest(m.version + 1, excluded.version), producer_group = excluded.producer_group,
    lock_consumer = NULL, lock_session = NULL, death = NULL, key = excluded.key,
    headers = excluded.headers, body = excluded.body, digest = excluded.digest,
    early_cancel = NULL
WHERE m.life = 1 AND m.ts <= %(now)s
    OR %(replace)s AND m.producer_group = excluded.producer_group
    AND (m.life <> 0 OR m.ts <= %(now)s OR m.lock_consumer IS NULL)
    AND (m.life = 1 AND m.digest = excluded.digest) IS NOT TRUE
RETURNING m.id, m.version;

-- name: notify
-- Tells the watches of all processes.
SELECT pg_notify('chronoline', %(payload)s);

-- name: reserve
-- Leases the oldest of some cells, from a moment up to a horizon, with their bodies. Of the oldest within reach
-- it takes, up to the limit, those that nobody else has locked; there is always a row, to say how many there
-- were. Before the moment lie index entries of messages that are gone, which stay until a vacuum.
WITH cell AS MATERIALIZED (
    SELECT * FROM unnest(%(stripe)b::smallint[], %(start)b::integer[], %(stop)b::integer[])
        AS c(stripe, start, stop)
    WHERE EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND paused_at IS NULL)
), bound AS MATERIALIZED (
    -- If each cell has its share of the limit up to here, then none of the oldest lies beyond.
    SELECT max(coalesce(share.ts, %(horizon)s)) AS ts
    FROM cell c
    LEFT JOIN LATERAL (
        SELECT m.ts FROM chronoline.messages m
        WHERE m.topic + 0 = %(topic)s AND m.stripe = c.stripe AND m.life = 0 AND m.ts <= %(horizon)s
            AND m.ts >= %(since)s AND m.bucket + 0 >= c.start AND m.bucket + 0 < c.stop
            AND (m.ts <= %(now)s OR m.lock_consumer IS NULL)
        ORDER BY m.ts OFFSET %(share)s - 1 LIMIT 1
    ) share ON true
), candidate AS MATERIALIZED (
    SELECT found.topic, found.bucket, found.id
    FROM cell c
    CROSS JOIN LATERAL (
        SELECT m.topic, m.bucket, m.id, m.ts FROM chronoline.messages m
        WHERE m.topic + 0 = %(topic)s AND m.stripe = c.stripe AND m.life = 0
            AND m.ts <= (SELECT ts FROM bound)
            AND m.ts >= %(since)s AND m.bucket + 0 >= c.start AND m.bucket + 0 < c.stop
            AND (m.ts <= %(now)s OR m.lock_consumer IS NULL)
        ORDER BY m.ts, m.bucket + 0 LIMIT %(reach)s
    ) found
    ORDER BY found.ts, found.bucket, found.id LIMIT %(reach)s
), chosen AS MATERIALIZED (
    SELECT m.topic, m.bucket, m.id, m.lock_consumer AS holder,
        CASE
            WHEN m.attempts + (m.lock_consumer IS NOT NULL)::integer >= %(max_attempts)s THEN 'attempts'
            WHEN m.expires <= greatest(m.due, %(now)s) THEN 'expired'
            WHEN m.due + %(max_lateness_ms)s::bigint < %(now)s THEN 'max_lateness'
        END AS death
    FROM candidate b JOIN chronoline.messages m
        ON m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
    WHERE m.life + 0 = 0 AND (m.ts <= %(now)s OR m.lock_consumer IS NULL AND m.ts <= %(horizon)s)
        AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
    LIMIT %(limit)s
    FOR UPDATE OF m SKIP LOCKED
), taken AS (
    UPDATE chronoline.messages m SET
        life = CASE WHEN chosen.death IS NULL THEN 0 ELSE 2 END,
        ts = CASE WHEN chosen.death IS NULL THEN greatest(m.due, %(now)s) + %(lease_ms)s ELSE %(now)s END,
        lock_consumer = CASE WHEN chosen.death IS NULL THEN %(consumer)s END,
        lock_session = CASE WHEN chosen.death IS NULL THEN %(session)s END,
        death = chosen.death,
        attempts = m.attempts + (chosen.holder IS NOT NULL)::integer,
        version = m.version + 1
    FROM chosen
    WHERE m.topic = ANY (ARRAY[chosen.topic]) AND m.bucket = chosen.bucket AND m.id = chosen.id
    RETURNING m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts,
        m.expires, m.key, m.headers, m.body, chosen.holder, chosen.death
)
SELECT looked.candidates, taken.*
FROM (SELECT count(*) AS candidates FROM candidate) looked LEFT JOIN taken ON true;

-- name: reserve_for
-- Leases the oldest of the cells of each recipient, up to its limit, with their bodies, like reserve. There is a
-- row for each recipient with candidates, to say how many there were.
WITH cell AS MATERIALIZED (
    SELECT * FROM unnest(%(stripe)b::smallint[], %(start)b::integer[], %(stop)b::integer[],
        %(share)b::integer[], %(most)b::integer[]) AS c(stripe, start, stop, recipient, most)
    WHERE EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND paused_at IS NULL)
), candidate AS MATERIALIZED (
    SELECT c.recipient, c.most, found.topic, found.bucket, found.id,
        row_number() OVER (PARTITION BY c.recipient ORDER BY found.ts, found.bucket, found.id) AS place
    FROM cell c
    CROSS JOIN LATERAL (
        SELECT m.topic, m.bucket, m.id, m.ts FROM chronoline.messages m
        WHERE m.topic + 0 = %(topic)s AND m.stripe = c.stripe AND m.life = 0 AND m.ts <= %(horizon)s
            AND m.bucket + 0 >= c.start AND m.bucket + 0 < c.stop
            AND (m.ts <= %(now)s OR m.lock_consumer IS NULL)
        ORDER BY m.ts, m.bucket + 0 LIMIT c.most
    ) found
), chosen AS MATERIALIZED (
    SELECT m.topic, m.bucket, m.id, b.recipient, m.lock_consumer AS holder,
        CASE
            WHEN m.attempts + (m.lock_consumer IS NOT NULL)::integer >= %(max_attempts)s THEN 'attempts'
            WHEN m.expires <= greatest(m.due, %(now)s) THEN 'expired'
            WHEN m.due + %(max_lateness_ms)s::bigint < %(now)s THEN 'max_lateness'
        END AS death
    FROM candidate b JOIN chronoline.messages m
        ON m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
    WHERE b.place <= b.most
        AND m.life + 0 = 0 AND (m.ts <= %(now)s OR m.lock_consumer IS NULL AND m.ts <= %(horizon)s)
        AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
    FOR UPDATE OF m SKIP LOCKED
), taken AS (
    UPDATE chronoline.messages m SET
        life = CASE WHEN chosen.death IS NULL THEN 0 ELSE 2 END,
        ts = CASE WHEN chosen.death IS NULL THEN greatest(m.due, %(now)s) + %(lease_ms)s ELSE %(now)s END,
        lock_consumer = CASE WHEN chosen.death IS NULL THEN (%(consumers)b::text[])[chosen.recipient] END,
        lock_session = CASE WHEN chosen.death IS NULL THEN (%(sessions)b::text[])[chosen.recipient] END,
        death = chosen.death,
        attempts = m.attempts + (chosen.holder IS NOT NULL)::integer,
        version = m.version + 1
    FROM chosen
    WHERE m.topic = ANY (ARRAY[chosen.topic]) AND m.bucket = chosen.bucket AND m.id = chosen.id
    RETURNING chosen.recipient AS recipient, m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer,
        m.version, m.attempts, m.expires, m.key, m.headers, m.body, chosen.holder, chosen.death
)
SELECT looked.recipient, looked.candidates, taken.id, taken.ts, taken.due, taken.bucket, taken.producer_group,
    taken.lock_consumer, taken.version, taken.attempts, taken.expires, taken.key, taken.headers, taken.body,
    taken.holder, taken.death
FROM (SELECT recipient, count(*) AS candidates FROM candidate GROUP BY recipient) looked
LEFT JOIN taken ON taken.recipient = looked.recipient;

-- name: lease
-- Leases messages by id and version.
WITH chosen AS MATERIALIZED (
    SELECT m.topic, m.bucket, m.id, m.lock_consumer AS holder,
        CASE
            WHEN m.attempts + (m.lock_consumer IS NOT NULL)::integer >= %(max_attempts)s THEN 'attempts'
            WHEN m.expires <= greatest(m.due, %(now)s) THEN 'expired'
            WHEN m.due + %(max_lateness_ms)s::bigint < %(now)s THEN 'max_lateness'
        END AS death
    FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
        %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
    JOIN chronoline.messages m ON m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
    WHERE m.life + 0 = 0 AND m.version = b.version
        AND (m.ts <= %(now)s OR m.lock_consumer IS NULL AND m.ts <= %(horizon)s)
        AND EXISTS (
            SELECT 1 FROM chronoline.topics
            WHERE uid = %(topic)s AND dropped_at IS NULL AND paused_at IS NULL
        )
    FOR UPDATE OF m
)
UPDATE chronoline.messages m SET
    life = CASE WHEN chosen.death IS NULL THEN 0 ELSE 2 END,
    ts = CASE WHEN chosen.death IS NULL THEN greatest(m.due, %(now)s) + %(lease_ms)s ELSE %(now)s END,
    lock_consumer = CASE WHEN chosen.death IS NULL THEN %(consumer)s END,
    lock_session = CASE WHEN chosen.death IS NULL THEN %(session)s END,
    death = chosen.death,
    attempts = m.attempts + (chosen.holder IS NOT NULL)::integer,
    version = m.version + 1
FROM chosen
WHERE m.topic = ANY (ARRAY[chosen.topic]) AND m.bucket = chosen.bucket AND m.id = chosen.id
RETURNING m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
    m.key, m.headers, m.body, chosen.holder, chosen.death;

-- name: resume
-- Gives live leases back to a consumer that returned, under new versions.
WITH chosen AS MATERIALIZED (
    SELECT m.topic, m.bucket, m.id, m.lock_session FROM chronoline.messages m
    WHERE m.topic + 0 = %(topic)s AND CASE WHEN m.life = 0 THEN m.lock_consumer END = %(consumer)s
        AND m.ts > %(now)s AND m.id || '' > %(after)s
        AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
    ORDER BY m.id || '' LIMIT %(limit)s
    FOR UPDATE
)
UPDATE chronoline.messages m SET version = m.version + 1, lock_session = %(session)s
FROM chosen
WHERE m.topic = ANY (ARRAY[chosen.topic]) AND m.bucket = chosen.bucket AND m.id = chosen.id
RETURNING m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
    m.key, m.headers, m.body, chosen.lock_session;

-- name: extend
-- Moves the ends of live leases.
UPDATE chronoline.messages m SET
    ts = b."to", version = m.version + 1
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.lock_consumer = b.name AND m.version = b.version AND m.ts > %(now)s
    AND b."to" >= greatest(m.due, %(now)s) + %(min_lease_ms)s
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: release
-- Gives messages back into the future.
UPDATE chronoline.messages m SET
    ts = b."to", due = b."to", lock_consumer = NULL, version = m.version + 1
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.lock_consumer = b.name AND m.version = b.version AND m.ts > %(now)s
    AND b."to" >= %(now)s + %(min_lease_ms)s
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: retry
-- Gives messages back after a failed attempt, or sends them to the dead letters after the last.
UPDATE chronoline.messages m SET
    attempts = m.attempts + 1, lock_consumer = NULL, version = m.version + 1,
    life = CASE WHEN m.attempts + 1 >= %(max_attempts)s THEN 2 ELSE 0 END,
    death = CASE WHEN m.attempts + 1 >= %(max_attempts)s THEN 'attempts' END,
    ts = CASE WHEN m.attempts + 1 >= %(max_attempts)s THEN %(now)s ELSE b."to" END,
    due = CASE WHEN m.attempts + 1 >= %(max_attempts)s THEN m.due ELSE b."to" END
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.lock_consumer = b.name AND m.version = b.version AND m.ts > %(now)s
    AND b."to" >= %(now)s + %(min_lease_ms)s
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: bury
-- Sends messages to the dead letters, for reasons that their holder gives.
UPDATE chronoline.messages m SET
    life = 2, ts = %(now)s, death = b.reason, attempts = m.attempts + 1, lock_consumer = NULL,
    version = m.version + 1
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(reason)b::text[]) AS b(topic, bucket, id, name, version, reason)
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.lock_consumer = b.name AND m.version = b.version AND m.ts > %(now)s
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: unreserve
-- Gives messages back as they were.
UPDATE chronoline.messages m SET
    ts = m.due, lock_consumer = NULL, version = m.version + 1
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.lock_consumer = b.name AND m.version = b.version AND m.ts > %(now)s
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: ack
-- Marks messages as deleted by their holder.
UPDATE chronoline.messages m SET
    life = 1, ts = %(until)s, version = m.version + 1, key = NULL, headers = NULL, body = NULL
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.lock_consumer = b.name AND m.version = b.version AND m.ts > %(now)s
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: ack_remove
-- Removes messages for their holder, where no mark is needed.
DELETE FROM chronoline.messages m
USING unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.lock_consumer = b.name AND m.version = b.version AND m.ts > %(now)s
    AND m.version
        <= (SELECT floor FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version + 1;

-- name: cancel
-- Marks messages as deleted by their owner.
UPDATE chronoline.messages m SET
    life = 1, ts = %(until)s, version = m.version + 1, key = NULL, headers = NULL, body = NULL,
    lock_consumer = NULL, lock_session = NULL
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.producer_group = b.name AND (m.ts <= %(now)s OR m.lock_consumer IS NULL)
    AND (b.version = 0 OR m.version = b.version)
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: cancel_remove
-- Removes messages for their owner, where no mark is needed.
DELETE FROM chronoline.messages m
USING unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.producer_group = b.name AND (m.ts <= %(now)s OR m.lock_consumer IS NULL)
    AND (b.version = 0 OR m.version = b.version)
    AND m.version
        <= (SELECT floor FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version + 1;

-- name: reschedule
-- Moves messages for their owner.
UPDATE chronoline.messages m SET
    ts = b."to", due = b."to", lock_consumer = NULL, lock_session = NULL, version = m.version + 1,
    attempts = m.attempts + (m.lock_consumer IS NOT NULL)::integer,
    expires = coalesce(b.expires, m.expires)
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[], %(expires)b::bigint[])
    AS b(topic, bucket, id, name, version, "to", expires)
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 0
    AND m.producer_group = b.name AND (m.ts <= %(now)s OR m.lock_consumer IS NULL)
    AND (b.version = 0 OR m.version = b.version)
    AND coalesce(coalesce(b.expires, m.expires) > greatest(b."to", %(now)s), TRUE)
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: redrive
-- Puts dead letters back on the timeline.
UPDATE chronoline.messages m SET
    life = 0, ts = b."to", due = b."to", attempts = 0, death = NULL, lock_session = NULL,
    version = m.version + 1,
    expires = CASE WHEN m.expires > greatest(b."to", %(now)s) THEN m.expires END
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 2
    AND (b.name = '' OR m.producer_group = b.name)
    AND (b.version = 0 OR m.version = b.version)
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: discard
-- Marks dead letters as deleted.
UPDATE chronoline.messages m SET
    life = 1, ts = %(until)s, version = m.version + 1, key = NULL, headers = NULL, body = NULL,
    lock_consumer = NULL, lock_session = NULL, death = NULL
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 2
    AND (b.name = '' OR m.producer_group = b.name)
    AND (b.version = 0 OR m.version = b.version)
    AND EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version;

-- name: discard_remove
-- Removes dead letters, where no mark is needed.
DELETE FROM chronoline.messages m
USING unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(name)b::text[],
    %(version)b::bigint[], %(to)b::bigint[]) AS b(topic, bucket, id, name, version, "to")
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 = 2
    AND (b.name = '' OR m.producer_group = b.name)
    AND (b.version = 0 OR m.version = b.version)
    AND m.version
        <= (SELECT floor FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL)
RETURNING m.id, m.version + 1;

-- name: rows
-- The columns of some rows that the guards read.
SELECT m.id, m.life, m.ts, m.producer_group, m.lock_consumer, m.version, m.due, m.expires,
    m.lock_session, m.digest, m.early_cancel
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[]) AS b(topic, bucket, id)
JOIN chronoline.messages m ON m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
WHERE EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL);

-- name: bodies
-- The columns of some rows that the guards read, with their bodies.
SELECT m.id, m.life, m.ts, m.producer_group, m.lock_consumer, m.version, m.due, m.expires,
    m.lock_session, m.digest, m.early_cancel, m.body
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[]) AS b(topic, bucket, id)
JOIN chronoline.messages m ON m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
WHERE EXISTS (SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL);

-- name: lookup
-- Messages by their ids.
SELECT m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
    m.key, m.headers
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[]) AS b(topic, bucket, id)
JOIN chronoline.messages m ON m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
WHERE m.life + 0 = 0;

-- name: select
-- The oldest messages of some cells.
WITH cell AS MATERIALIZED (
    SELECT * FROM unnest(%(stripe)b::smallint[], %(start)b::integer[], %(stop)b::integer[])
        AS c(stripe, start, stop)
), bound AS MATERIALIZED (
    -- As in reserve.
    SELECT max(coalesce(share.ts, %(max_ts)s)) AS ts
    FROM cell c
    LEFT JOIN LATERAL (
        SELECT m.ts FROM chronoline.messages m
        WHERE m.topic + 0 = %(topic)s AND m.stripe = c.stripe AND m.life = 0 AND m.ts <= %(max_ts)s
            AND m.bucket + 0 >= c.start AND m.bucket + 0 < c.stop
        ORDER BY m.ts OFFSET %(share)s - 1 LIMIT 1
    ) share ON true
)
SELECT found.*
FROM cell c
CROSS JOIN LATERAL (
    SELECT m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
        m.key, m.headers
    FROM chronoline.messages m
    WHERE m.topic + 0 = %(topic)s AND m.stripe = c.stripe AND m.life = 0
        AND m.ts <= (SELECT ts FROM bound)
        AND m.bucket + 0 >= c.start AND m.bucket + 0 < c.stop
    ORDER BY m.ts, m.bucket + 0 LIMIT %(limit)s
) found
ORDER BY found.ts, found.bucket, found.id LIMIT %(limit)s;

-- name: select_held
-- Messages that name a consumer as their holder.
SELECT m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
    m.key, m.headers
FROM chronoline.messages m
WHERE m.topic + 0 = %(topic)s AND CASE WHEN m.life = 0 THEN m.lock_consumer END = %(consumer)s
    AND m.id || '' > %(after)s AND m.id || '' >= %(first)s
    AND (%(session)s::text IS NULL OR m.lock_session = %(session)s)
ORDER BY m.id || '' LIMIT %(limit)s;

-- name: select_owned
-- Messages of a producer group.
SELECT m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
    m.key, m.headers
FROM chronoline.messages m
WHERE m.topic + 0 = %(topic)s AND CASE WHEN m.life = 0 THEN m.producer_group END = %(producer_group)s
    AND m.id || '' > %(after)s AND m.id || '' >= %(first)s
ORDER BY m.id || '' LIMIT %(limit)s;

-- name: select_keys
-- Messages of some buckets, by bucket and id.
SELECT found.* FROM generate_series(%(start)s::integer, %(stop)s::integer - 1) AS b(bucket)
CROSS JOIN LATERAL (
    SELECT m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
        m.key, m.headers
    FROM chronoline.messages m
    WHERE m.topic = %(topic)s AND m.bucket = b.bucket AND m.life + 0 = 0
        AND m.id > CASE WHEN b.bucket = %(start)s THEN %(after)s ELSE '' END
        AND m.id >= %(first)s AND m.id < %(end)s
    ORDER BY m.id LIMIT %(limit)s
) found
ORDER BY found.bucket, found.id LIMIT %(limit)s;

-- name: next_group
-- The next producer group that has messages.
SELECT CASE WHEN m.life = 0 THEN m.producer_group END FROM chronoline.messages m
WHERE m.topic + 0 = %(topic)s AND CASE WHEN m.life = 0 THEN m.producer_group END > %(after)s
ORDER BY CASE WHEN m.life = 0 THEN m.producer_group END LIMIT 1;

-- name: count_owned
-- The number of messages of a producer group, up to a bound.
SELECT count(*) FROM (
    SELECT 1 FROM chronoline.messages m
    WHERE m.topic + 0 = %(topic)s AND CASE WHEN m.life = 0 THEN m.producer_group END = %(producer_group)s
    LIMIT %(most)s
) AS found;

-- name: next_times
-- The oldest position of each share of the cells.
SELECT c.share, min(found.ts)
FROM unnest(%(stripe)b::smallint[], %(start)b::integer[], %(stop)b::integer[], %(share)b::integer[])
    AS c(stripe, start, stop, share)
CROSS JOIN LATERAL (
    SELECT m.ts FROM chronoline.messages m
    WHERE m.topic + 0 = %(topic)s AND m.stripe = c.stripe AND m.life = 0
        AND m.bucket + 0 >= c.start AND m.bucket + 0 < c.stop
    ORDER BY m.ts LIMIT 1
) found
WHERE EXISTS (
    SELECT 1 FROM chronoline.topics WHERE uid = %(topic)s AND dropped_at IS NULL AND paused_at IS NULL
)
GROUP BY c.share;

-- name: forecast
-- Counts of some cells by step and status, from the index alone.
SELECT (m.ts - %(from)s) / %(step_ms)s AS step,
    count(*) FILTER (WHERE m.ts <= %(now)s),
    count(*) FILTER (WHERE m.ts > %(now)s AND m.lock_consumer IS NOT NULL),
    count(*) FILTER (WHERE m.ts > %(now)s AND m.lock_consumer IS NULL)
FROM unnest(%(stripe)b::smallint[], %(start)b::integer[], %(stop)b::integer[])
    AS c(stripe, start, stop)
JOIN chronoline.messages m ON m.topic + 0 = %(topic)s AND m.stripe = c.stripe AND m.life = 0
    AND m.ts >= %(from)s AND m.ts < %(end)s
    AND m.bucket + 0 >= c.start AND m.bucket + 0 < c.stop
GROUP BY step;

-- name: scan
-- The messages of a cell behind a place.
SELECT m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
    m.key, m.headers
FROM chronoline.messages m
WHERE m.topic + 0 = %(topic)s AND m.stripe = %(stripe)s AND m.life = 0
    AND m.ts >= %(from)s AND m.ts < %(end)s AND m.bucket + 0 >= %(start)s AND m.bucket + 0 < %(stop)s
    AND (m.ts, m.id) > (%(from)s, %(after)s)
ORDER BY m.ts, m.id LIMIT %(limit)s;

-- name: scan_held
-- The messages of a topic that name a holder, behind a place.
SELECT m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
    m.key, m.headers
FROM chronoline.messages m
WHERE m.topic + 0 = %(topic)s AND CASE WHEN m.life = 0 THEN m.lock_consumer END IS NOT NULL
    AND (CASE WHEN m.life = 0 THEN m.lock_consumer END, m.id || '') > (%(consumer)s, %(after)s)
ORDER BY CASE WHEN m.life = 0 THEN m.lock_consumer END, m.id || '' LIMIT %(limit)s;

-- name: dead_letters
-- The oldest dead letters.
SELECT m.id, m.ts, m.due, m.bucket, m.producer_group, m.lock_consumer, m.version, m.attempts, m.expires,
    m.key, m.headers, m.death
FROM chronoline.messages m
WHERE m.topic + 0 = %(topic)s AND m.life = 2 AND (m.ts, m.id || '') > (%(died)s, %(after)s)
ORDER BY m.ts, m.id || '' LIMIT %(limit)s;

-- name: raise_floors
-- Raises the floors of topics that are a second behind.
UPDATE chronoline.topics t SET floor = greatest(t.floor, %(settled)s - 1)
FROM (
    SELECT d.uid FROM chronoline.topics d
    WHERE d.uid = ANY (%(topics)b::bigint[]) AND d.floor < %(settled)s - 1000
    ORDER BY d.uid FOR UPDATE SKIP LOCKED
) behind
WHERE t.uid = behind.uid;

-- name: purge_marks
-- Removes marks whose time is over, when their versions are settled, and raises the floors above them.
WITH waste AS MATERIALIZED (
    SELECT w.topic, w.bucket, w.id FROM chronoline.messages w
    WHERE w.life = 1 AND w.ts <= %(now)s AND w.version < %(settled)s
    ORDER BY w.ts LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), raised AS (
    UPDATE chronoline.topics t SET floor = greatest(t.floor, %(settled)s - 1)
    FROM (
        SELECT d.uid FROM chronoline.topics d
        WHERE d.uid = ANY (ARRAY(SELECT DISTINCT topic FROM waste)) AND d.floor < %(settled)s - 1
        ORDER BY d.uid FOR UPDATE
    ) behind
    WHERE t.uid = behind.uid
)
DELETE FROM chronoline.messages m
USING waste
WHERE m.topic = ANY (ARRAY[waste.topic]) AND m.bucket = waste.bucket AND m.id = waste.id
RETURNING m.topic;

-- name: topics_without_dead_letters
-- Topics that keep no dead letters, and have some.
SELECT t.uid FROM chronoline.topics t
WHERE t.dropped_at IS NULL AND NOT (t.settings::jsonb->>'dead_letters')::boolean
    AND (SELECT true FROM chronoline.messages m WHERE m.topic + 0 = t.uid AND m.life = 2
        ORDER BY m.ts LIMIT 1);

-- name: purge_dead
-- Removes dead letters of a topic that keeps none, when their versions are settled, and raises its floor.
WITH waste AS MATERIALIZED (
    SELECT w.topic, w.bucket, w.id FROM chronoline.messages w
    WHERE w.topic + 0 = %(topic)s AND w.life = 2 AND w.version < %(settled)s
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), raised AS (
    UPDATE chronoline.topics t SET floor = greatest(t.floor, %(settled)s - 1)
    WHERE t.uid = %(topic)s AND t.floor < %(settled)s - 1 AND EXISTS (SELECT 1 FROM waste)
)
DELETE FROM chronoline.messages m
USING waste
WHERE m.topic = ANY (ARRAY[waste.topic]) AND m.bucket = waste.bucket AND m.id = waste.id
RETURNING m.topic;

-- name: dropped_topics
-- Topics that wait to be emptied, and those that can be forgotten: between the two there is nothing to do.
(SELECT uid, emptied_at FROM chronoline.topics
WHERE dropped_at IS NOT NULL AND emptied_at IS NULL LIMIT %(limit)s)
UNION ALL
(SELECT uid, emptied_at FROM chronoline.topics
WHERE dropped_at IS NOT NULL AND emptied_at <= %(before)s LIMIT %(limit)s);

-- name: purge_dropped
-- Removes messages of dropped topics.
WITH waste AS MATERIALIZED (
    SELECT left_over.topic, left_over.bucket, left_over.id
    FROM unnest(%(topics)b::bigint[]) AS dropped(topic)
    CROSS JOIN LATERAL (
        SELECT w.topic, w.bucket, w.id FROM chronoline.messages w
        WHERE w.topic = dropped.topic
        LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) left_over
    LIMIT %(limit)s
)
DELETE FROM chronoline.messages m
USING waste
WHERE m.topic = ANY (ARRAY[waste.topic]) AND m.bucket = waste.bucket AND m.id = waste.id
RETURNING m.topic;

-- name: free_names
-- Frees the names of dropped topics without messages.
UPDATE chronoline.topics t SET emptied_at = %(now)s
FROM unnest(%(topics)b::bigint[]) AS dropped(topic)
WHERE t.uid = dropped.topic AND t.dropped_at IS NOT NULL AND t.emptied_at IS NULL
    AND (SELECT true FROM chronoline.messages m WHERE m.topic = dropped.topic ORDER BY m.bucket LIMIT 1)
        IS NULL;

-- name: forget_topics
-- Deletes dropped topics without messages, once no statement can be on its way to them.
DELETE FROM chronoline.topics t
USING unnest(%(topics)b::bigint[]) AS dropped(topic)
WHERE t.uid = dropped.topic AND t.emptied_at <= %(before)s
    AND (SELECT true FROM chronoline.messages m WHERE m.topic = dropped.topic ORDER BY m.bucket LIMIT 1)
        IS NULL;

-- name: claim_inputs
-- Claims partitions that nobody holds, and the holder's own again.
INSERT INTO chronoline.inputs AS i (source, partition, position, holder, until_ms)
SELECT %(source)s, (start->>0)::bigint, (start->>1)::bigint, %(holder)s, %(until)s
FROM jsonb_array_elements(%(starts)s::jsonb) start
ON CONFLICT (source, partition) DO UPDATE SET
    holder = %(holder)s, fence = i.fence + 1, until_ms = %(until)s
WHERE i.holder IS NULL OR i.holder = %(holder)s OR i.until_ms <= %(now)s
RETURNING i.partition, i.fence, i.position;

-- name: renew_claims
-- Moves the ends of live claims. The rows are locked in the order of an intake, else both could wait for each other.
WITH live AS MATERIALIZED (
    SELECT i.source, i.partition FROM chronoline.inputs i
    JOIN jsonb_array_elements(%(claims)s::jsonb) c
        ON i.source = ANY (ARRAY[c->>0]) AND i.partition = (c->>1)::bigint
    WHERE i.holder = c->>2 AND i.fence = (c->>3)::bigint AND i.until_ms > %(now)s
    ORDER BY i.source || '', i.partition
    FOR UPDATE OF i
)
UPDATE chronoline.inputs i SET until_ms = %(until)s
FROM live
WHERE i.source = ANY (ARRAY[live.source]) AND i.partition = live.partition
RETURNING i.source, i.partition, i.position;

-- name: release_claims
-- Gives claims up; the rows are locked in the order of an intake.
WITH held AS MATERIALIZED (
    SELECT i.source, i.partition FROM chronoline.inputs i
    JOIN jsonb_array_elements(%(claims)s::jsonb) c
        ON i.source = ANY (ARRAY[c->>0]) AND i.partition = (c->>1)::bigint
    WHERE i.holder = c->>2 AND i.fence = (c->>3)::bigint
    ORDER BY i.source || '', i.partition
    FOR UPDATE OF i
)
UPDATE chronoline.inputs i SET holder = NULL, until_ms = 0
FROM held
WHERE i.source = ANY (ARRAY[held.source]) AND i.partition = held.partition
RETURNING i.partition;

-- name: positions
-- The positions of live claims; nobody else moves them until the transaction ends.
SELECT i.source, i.partition, i.position FROM chronoline.inputs i
JOIN jsonb_array_elements(%(claims)s::jsonb) c
    ON i.source = ANY (ARRAY[c->>0]) AND i.partition = (c->>1)::bigint
WHERE i.holder = c->>2 AND i.fence = (c->>3)::bigint AND i.until_ms > %(now)s
ORDER BY i.source || '', i.partition
FOR UPDATE OF i;

-- name: move_inputs
-- Moves positions, never backwards, and adds to the counts.
UPDATE chronoline.inputs i SET
    position = greatest(i.position, (m->>2)::bigint), accepted = i.accepted + (m->>3)::bigint,
    ignored = i.ignored + (m->>4)::bigint, rejected = i.rejected + (m->>5)::bigint,
    cancelled = i.cancelled + (m->>6)::bigint, rescheduled = i.rescheduled + (m->>7)::bigint,
    missed = i.missed + (m->>8)::bigint, withdrawn = i.withdrawn + (m->>9)::bigint
FROM jsonb_array_elements(%(moves)s::jsonb) m
WHERE i.source = ANY (ARRAY[m->>0]) AND i.partition = (m->>1)::bigint
RETURNING i.partition;

-- name: input_accounts
-- The accounts of a source.
SELECT partition, position, holder, until_ms, fence, accepted, ignored, rejected, cancelled, rescheduled, missed,
    withdrawn
FROM chronoline.inputs WHERE source = %(source)s ORDER BY partition;

-- name: forget_inputs
-- Deletes the accounts of partitions that nobody claims.
DELETE FROM chronoline.inputs WHERE source = %(source)s AND (holder IS NULL OR until_ms <= %(now)s)
RETURNING partition;

-- name: reject
-- Sends messages that were just created to the dead letters.
UPDATE chronoline.messages m SET life = 2, death = 'rejected', ts = %(now)s, version = m.version + 1
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[]) AS b(topic, bucket, id)
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
RETURNING m.id;

-- name: restore
-- Gives messages that were just created their saved history.
UPDATE chronoline.messages m SET
    due = b.due, ts = CASE WHEN b.death IS NULL THEN b.due ELSE b.died END, attempts = b.attempts,
    life = CASE WHEN b.death IS NULL THEN 0 ELSE 2 END, death = b.death
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(due)b::bigint[],
    %(attempts)b::integer[], %(death)b::text[], %(died)b::bigint[])
    AS b(topic, bucket, id, due, attempts, death, died)
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
RETURNING m.id;

-- name: keep_letters
-- Copies dead letters to new keys, with one more header.
INSERT INTO chronoline.messages
    (topic, bucket, stripe, id, life, ts, due, version, attempts, expires, producer_group, lock_session,
    death, key, headers, body, digest)
SELECT m.topic, b.kept_bucket, b.kept_stripe, b.kept_id, m.life, m.ts, m.due, m.version, m.attempts,
    m.expires, m.producer_group, m.lock_session, m.death, m.key,
    coalesce(m.headers, ''::bytea) || b.header, m.body, m.digest
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[], %(kept_bucket)b::integer[],
    %(kept_stripe)b::smallint[], %(kept_id)b::text[], %(header)b::bytea[])
    AS b(topic, bucket, id, kept_bucket, kept_stripe, kept_id, header)
JOIN chronoline.messages m ON m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id
WHERE m.life + 0 = 2
ON CONFLICT DO NOTHING
RETURNING id;

-- name: mark_early
-- Makes the marks of cancels that wait for their creates.
INSERT INTO chronoline.messages AS m
    (topic, bucket, stripe, id, life, ts, due, version, producer_group, early_cancel)
SELECT t.uid, unnest(%(bucket)b::integer[]), unnest(%(stripe)b::smallint[]), unnest(%(id)b::text[]), 1,
    unnest(%(until)b::bigint[]), unnest(%(until)b::bigint[]), greatest(%(now)s, t.floor + 1),
    %(producer_group)s, unnest(%(partition)b::text[])
FROM chronoline.topics t WHERE t.uid = %(topic)s AND t.dropped_at IS NULL
ON CONFLICT (topic, bucket, id) DO UPDATE SET
    ts = excluded.ts, version = greatest(m.version + 1, excluded.version),
    producer_group = excluded.producer_group, lock_consumer = NULL, lock_session = NULL, digest = NULL,
    early_cancel = excluded.early_cancel
WHERE m.life = 1 AND (m.ts <= %(now)s OR m.early_cancel IS NOT NULL)
RETURNING m.id;

-- name: free
-- Turns dead letters and marks into marks that take no id.
UPDATE chronoline.messages m SET
    life = 1, ts = %(until)s, version = m.version + 1, key = NULL, headers = NULL, body = NULL,
    lock_consumer = NULL, lock_session = NULL, death = NULL, digest = NULL, early_cancel = NULL
FROM unnest(%(topics)b::bigint[], %(bucket)b::integer[], %(id)b::text[]) AS b(topic, bucket, id)
WHERE m.topic = ANY (ARRAY[b.topic]) AND m.bucket = b.bucket AND m.id = b.id AND m.life + 0 <> 0
RETURNING m.id;

-- name: beat
-- Says that a member is alive.
INSERT INTO chronoline.members AS m ("group", name, until_ms, details)
VALUES (%(group)s, %(name)s, %(until)s, %(details)s)
ON CONFLICT ("group", name) DO UPDATE SET until_ms = %(until)s, details = %(details)s
RETURNING m.name;

-- name: forget_members
-- Forgets members that died long ago.
DELETE FROM chronoline.members WHERE until_ms <= %(before)s RETURNING name;

-- name: members
-- The members of a group.
SELECT name, until_ms, stopping, details FROM chronoline.members WHERE "group" = %(group)s ORDER BY name;

-- name: live_groups
-- The groups with a member that is alive.
SELECT DISTINCT "group" FROM chronoline.members WHERE until_ms > %(now)s;

-- name: ask_to_stop
-- Asks one member, or all, to stop.
UPDATE chronoline.members SET stopping = true
WHERE "group" = %(group)s AND (%(name)s::text IS NULL OR name = %(name)s)
RETURNING name;

-- name: leave
-- Forgets a member.
DELETE FROM chronoline.members WHERE "group" = %(group)s AND name = %(name)s RETURNING name;

-- name: clock
-- The server's clock, which no rule depends on.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000);

-- name: insert_schedule
-- Makes a schedule on a live topic; that of a dropped topic does not keep its name.
INSERT INTO chronoline.schedules AS s (name, uid, topic, version, next_ms, paused, producer_group, rule, key, headers, body)
SELECT %(name)s, %(uid)s, t.uid, %(version)s, %(next_ms)s, %(paused)s, %(producer_group)s, %(rule)s, %(key)b,
    %(headers)b, %(body)b
FROM chronoline.topics t WHERE t.uid = %(topic)s AND t.dropped_at IS NULL
ON CONFLICT (name) DO UPDATE SET
    uid = excluded.uid, topic = excluded.topic, version = excluded.version, next_ms = excluded.next_ms,
    paused = excluded.paused, producer_group = excluded.producer_group, rule = excluded.rule,
    key = excluded.key, headers = excluded.headers, body = excluded.body
WHERE NOT EXISTS (SELECT FROM chronoline.topics t WHERE t.uid = s.topic AND t.dropped_at IS NULL)
    AND (s.topic <> 0 OR (excluded.next_ms <= s.next_ms) IS NOT TRUE)
RETURNING s.name;

-- name: replace_schedule
-- Puts another state in the place of one.
UPDATE chronoline.schedules s SET
    uid = %(uid)s, topic = %(topic)s, version = %(version)s, next_ms = %(next_ms)s, paused = %(paused)s,
    producer_group = %(producer_group)s, rule = %(rule)s, key = %(key)b, headers = %(headers)b, body = %(body)b
WHERE s.name = %(name)s AND s.uid = %(was_uid)s AND s.version = %(was_version)s
    AND EXISTS (SELECT FROM chronoline.topics t WHERE t.uid = %(topic)s AND t.dropped_at IS NULL)
RETURNING s.name;

-- name: remove_schedule
-- Leaves of a schedule in a state the moment after which another of its name begins.
UPDATE chronoline.schedules SET
    topic = 0, version = version + 1, next_ms = %(floor)s, paused = true, key = NULL, headers = NULL, body = NULL
WHERE name = %(name)s AND uid = %(uid)s AND version = %(version)s
RETURNING name;

-- name: schedule_floor
-- The moment after which a schedule of a name begins.
SELECT next_ms FROM chronoline.schedules WHERE name = %(name)s AND topic = 0;

-- name: move_schedules
-- Moves schedules of live topics to their next times; another broker moves those that it holds.
WITH held AS MATERIALIZED (
    SELECT s.name, (move->>3)::bigint AS next_ms FROM jsonb_array_elements(%(moves)s::jsonb) move
    JOIN chronoline.schedules s ON s.name = ANY (ARRAY[move->>0])
    WHERE s.uid = (move->>1)::bigint AND s.version = (move->>2)::bigint
        AND s.paused IS NOT TRUE  -- not the words of the index by time, which must not serve this
        AND EXISTS (SELECT FROM chronoline.topics t WHERE t.uid = s.topic AND t.dropped_at IS NULL)
    FOR UPDATE OF s SKIP LOCKED
)
UPDATE chronoline.schedules s SET next_ms = held.next_ms, version = s.version + 1
FROM held
WHERE s.name = ANY (ARRAY[held.name])
RETURNING s.name;

-- name: schedule_named
-- A schedule of a live topic.
SELECT s.name, s.uid, s.topic, s.version, s.next_ms, s.paused, s.producer_group, s.rule, s.key, s.headers, s.body
FROM chronoline.schedules s
WHERE s.name = %(name)s AND EXISTS (SELECT FROM chronoline.topics t WHERE t.uid = s.topic AND t.dropped_at IS NULL);

-- name: schedules
-- Schedules of live topics by name, without their bodies.
SELECT s.name, s.uid, s.topic, s.version, s.next_ms, s.paused, s.producer_group, s.rule, s.key, s.headers,
    NULL::bytea
FROM chronoline.schedules s
WHERE s.name > %(after)s AND (%(topic)s::bigint IS NULL OR s.topic = %(topic)s::bigint)
    AND EXISTS (SELECT FROM chronoline.topics t WHERE t.uid = s.topic AND t.dropped_at IS NULL)
ORDER BY s.name LIMIT %(limit)s;

-- name: count_schedules
-- The number of schedules of a topic, up to a number.
SELECT count(*) FROM (SELECT FROM chronoline.schedules WHERE topic + 0 = %(topic)s LIMIT %(most)s) found;

-- name: due_schedules
-- Schedules by their next times.
SELECT name, uid, topic, version, next_ms, paused, producer_group, rule, key, headers, body
FROM chronoline.schedules
WHERE NOT paused AND next_ms <= %(before)s AND (next_ms, name) > (%(after_ms)s, %(after)s)
ORDER BY next_ms, name LIMIT %(limit)s;

-- name: next_schedule
-- The earliest next time after a moment.
SELECT next_ms FROM chronoline.schedules
WHERE NOT paused AND next_ms > %(after_ms)s ORDER BY next_ms LIMIT 1;

-- name: forget_schedules
-- Deletes the schedules of dropped topics.
DELETE FROM chronoline.schedules WHERE topic + 0 = ANY (%(topics)b::bigint[]) RETURNING name;

-- name: forget_floors
-- Deletes what is left of schedules that were deleted long ago.
DELETE FROM chronoline.schedules WHERE topic + 0 = 0 AND next_ms <= %(before)s RETURNING name;
