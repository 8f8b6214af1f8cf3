CREATE TABLE chronoline.topics (
    uid bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    settings text NOT NULL,
    dropped_at bigint,
    -- Nothing was left when the name was freed; the uid is kept for a while, for a statement that was late.
    emptied_at bigint
);
CREATE UNIQUE INDEX topics_name ON chronoline.topics (name) WHERE emptied_at IS NULL;

-- life: 0 a message at ts; 1 the mark of a deleted one, its id taken until ts; 2 a dead letter since ts.
CREATE TABLE chronoline.messages (
    topic bigint NOT NULL,
    ts bigint NOT NULL,
    due bigint NOT NULL,
    version bigint NOT NULL,
    expires bigint,
    bucket integer NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    stripe smallint NOT NULL,
    life smallint NOT NULL DEFAULT 0,
    id text COLLATE "C" NOT NULL,
    producer_group text COLLATE "C" NOT NULL,
    lock_consumer text COLLATE "C",
    death text,
    key bytea,
    headers bytea,
    -- Large bodies lie apart without being compressed, so that a lease does not rewrite them.
    body bytea,
    PRIMARY KEY (topic, bucket, id)
) WITH (
    -- A timeline is a queue at its head: dead rows there cost every reader, so they go early.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.1
);
ALTER TABLE chronoline.messages ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX messages_due ON chronoline.messages (topic, stripe, ts, bucket, lock_consumer)
    WHERE life = 0;
CREATE INDEX messages_held ON chronoline.messages (topic, lock_consumer, id)
    WHERE life = 0 AND lock_consumer IS NOT NULL;
CREATE INDEX messages_owned ON chronoline.messages (topic, producer_group, id) WHERE life = 0;
CREATE INDEX messages_gone ON chronoline.messages (ts) WHERE life = 1;
CREATE INDEX messages_dead ON chronoline.messages (topic, ts, id) WHERE life = 2;

-- Puts a message on a timeline inside the caller's own transaction. Answers its version, or NULL if the id
-- is taken; raises what is invalid. Headers are [["name", "text"], …]; times are UTC milliseconds.
-- It announces what falls due soon, unless the setting chronoline.notify is off.
CREATE FUNCTION chronoline.send(
    topic_name text, message_id text, due_ms bigint, message_body bytea, now_ms bigint,
    group_name text DEFAULT 'default', message_key bytea DEFAULT NULL,
    message_headers jsonb DEFAULT '[]', expires_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    last_ms CONSTANT bigint := 253402300799999;
    settings jsonb;
    topic_uid bigint;
    digest bytea := sha256(convert_to(message_id, 'UTF8'));
    message_bucket integer;
    packed_headers bytea;
    made bigint;
BEGIN
    SELECT t.uid, t.settings::jsonb INTO topic_uid, settings
    FROM chronoline.topics t WHERE t.name = topic_name AND t.emptied_at IS NULL AND t.dropped_at IS NULL;
    IF topic_uid IS NULL THEN
        RAISE EXCEPTION 'there is no topic named %', topic_name;
    END IF;
    IF coalesce(octet_length(message_id), 0) NOT BETWEEN 1 AND 512
        OR coalesce(octet_length(group_name), 0) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'the id must have 1 to 512 bytes, the producer group 1 to 255';
    ELSIF due_ms IS NULL OR now_ms IS NULL OR due_ms NOT BETWEEN 0 AND last_ms
        OR now_ms NOT BETWEEN 0 AND last_ms OR expires_ms NOT BETWEEN 0 AND last_ms THEN
        RAISE EXCEPTION 'times must lie between 1970 and the year 9999, in milliseconds';
    ELSIF expires_ms <= due_ms THEN
        RAISE EXCEPTION 'expires is not after due: the message could never be delivered';
    ELSIF octet_length(message_body) > (settings->>'largest_body_bytes')::bigint
        OR octet_length(message_key) > 65536 THEN
        RAISE EXCEPTION 'the body or the key is larger than the topic allows';
    ELSIF jsonb_typeof(message_headers) <> 'array' OR jsonb_array_length(message_headers) > 256 THEN
        RAISE EXCEPTION 'headers must be an array of at most 256 [name, value] pairs';
    ELSIF EXISTS (
        SELECT FROM jsonb_array_elements(message_headers) h
        WHERE CASE WHEN jsonb_typeof(h) <> 'array' OR jsonb_array_length(h) <> 2 THEN true ELSE
            jsonb_typeof(h->0) <> 'string' OR jsonb_typeof(h->1) NOT IN ('string', 'null')
            OR octet_length(convert_to(h->>0, 'UTF8')) > 255 END
    ) THEN
        RAISE EXCEPTION 'a header must be [name, value]: a name of at most 255 bytes, and text or null';
    END IF;
    SELECT string_agg(
        int2send(octet_length(convert_to(h->>0, 'UTF8'))::int2) || convert_to(h->>0, 'UTF8')
        || int4send(coalesce(octet_length(convert_to(h->>1, 'UTF8')), -1))
        || coalesce(convert_to(h->>1, 'UTF8'), ''::bytea), ''::bytea ORDER BY place
    ) INTO packed_headers
    FROM jsonb_array_elements(message_headers) WITH ORDINALITY AS each(h, place);
    IF octet_length(packed_headers) > 65536 THEN
        RAISE EXCEPTION 'the headers have more than 65536 bytes';
    END IF;
    message_bucket := ((get_byte(digest, 0) << 8) | get_byte(digest, 1))
        % (settings->>'buckets')::integer;
    INSERT INTO chronoline.messages AS m
        (topic, bucket, stripe, id, ts, due, version, expires, producer_group, key, headers, body)
    VALUES (topic_uid, message_bucket, message_bucket * 16 / (settings->>'buckets')::integer,
        message_id, due_ms, due_ms, now_ms, expires_ms, group_name, message_key, packed_headers,
        message_body)
    ON CONFLICT (topic, bucket, id) DO UPDATE SET
        life = 0, ts = excluded.ts, due = excluded.due, attempts = 0, expires = excluded.expires,
        version = greatest(m.version + 1, excluded.version),
        producer_group = excluded.producer_group, lock_consumer = NULL, death = NULL,
        key = excluded.key, headers = excluded.headers, body = excluded.body
    WHERE m.life = 1 AND m.ts <= now_ms
    RETURNING version INTO made;
    IF made IS NOT NULL AND due_ms <= now_ms + 10000
        AND coalesce(current_setting('chronoline.notify', true), '') <> 'off' THEN
        PERFORM pg_notify('chronoline', topic_uid || ':' || due_ms);
    END IF;
    RETURN made;
END $$;
