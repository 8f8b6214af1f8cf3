-- That an id is taken is as durable as a message that is sent. Ids that URLs resolve are refused, as in core/limits.py.
CREATE OR REPLACE FUNCTION chronoline.send(
    topic_name text, message_id text, due_ms bigint, message_body bytea, now_ms bigint,
    group_name text DEFAULT 'default', message_key bytea DEFAULT NULL,
    message_headers jsonb DEFAULT '[]', expires_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last_ms CONSTANT bigint := 253402300799999;
    settings jsonb;
    topic_uid bigint;
    first_version bigint;
    digest bytea := sha256(convert_to(message_id, 'UTF8'));
    message_bucket integer;
    span_ms bigint;
    packed_headers bytea;
    made bigint;
BEGIN
    SELECT t.uid, t.settings::jsonb, greatest(now_ms, t.floor + 1) INTO topic_uid, settings, first_version
    FROM chronoline.topics t WHERE t.name = topic_name AND t.emptied_at IS NULL AND t.dropped_at IS NULL;
    IF topic_uid IS NULL THEN
        RAISE EXCEPTION 'there is no topic named %', topic_name;
    END IF;
    IF coalesce(octet_length(message_id), 0) NOT BETWEEN 1 AND 512
        OR coalesce(octet_length(group_name), 0) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'the id must have 1 to 512 bytes, the producer group 1 to 255';
    ELSIF message_id IN ('.', '..') THEN
        RAISE EXCEPTION 'the id cannot be . or ..: in the path of a URL it would be resolved to another name';
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
    span_ms := coalesce((settings->>'spread_ms')::bigint, 0);
    IF span_ms > 0 THEN
        span_ms := least(span_ms, coalesce(expires_ms - due_ms, span_ms));
        due_ms := least(
            due_ms + ('x' || encode(substr(digest, 3, 7), 'hex'))::bit(56)::bigint % span_ms, last_ms);
    END IF;
    INSERT INTO chronoline.messages AS m
        (topic, bucket, stripe, id, ts, due, version, expires, producer_group, key, headers, body)
    VALUES (topic_uid, message_bucket, message_bucket * 16 / (settings->>'buckets')::integer,
        message_id, due_ms, due_ms, first_version, expires_ms, group_name, message_key, packed_headers,
        message_body)
    ON CONFLICT (topic, bucket, id) DO NOTHING
    RETURNING m.version INTO made;
    IF made IS NULL THEN
        -- A message that is there is not locked: its holder's ack must not wait for the caller's commit.
        UPDATE chronoline.messages m SET
            life = 0, ts = due_ms, due = due_ms, attempts = 0, expires = expires_ms,
            version = greatest(m.version + 1, first_version), producer_group = group_name,
            lock_consumer = NULL, lock_session = NULL, death = NULL, key = message_key, headers = packed_headers,
            body = message_body, digest = NULL, early_cancel = NULL
        WHERE m.topic = topic_uid AND m.bucket = message_bucket AND m.id = message_id
            AND m.life + 0 = 1 AND m.ts <= now_ms
        RETURNING m.version INTO made;
    END IF;
    IF made IS NULL THEN
        -- The caller may conclude that it was sent before: the commit waits for standbys as if it were now.
        BEGIN
            PERFORM pg_logical_emit_message(true, 'chronoline', '');
        EXCEPTION WHEN undefined_function OR feature_not_supported THEN
            NULL;  -- a database that is no PostgreSQL: it shows nothing before it is durable
        END;
    ELSIF due_ms <= now_ms + 10000
        AND coalesce(current_setting('chronoline.notify', true), '') <> 'off' THEN
        PERFORM pg_notify('chronoline', topic_uid || ':' || due_ms);
    END IF;
    RETURN made;
END $$;
