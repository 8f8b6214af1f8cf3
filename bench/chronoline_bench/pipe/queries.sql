-- name: create_table
-- The one table.
CREATE TABLE messages (
    id varchar(128) PRIMARY KEY,
    deadline timestamptz NOT NULL,
    readied_at timestamptz,
    readied_by uuid,
    message_headers jsonb,
    message_key varchar(128),
    message_value bytea
);

-- name: create_deadline_index
-- Finds due messages.
CREATE INDEX ON messages (deadline) WHERE readied_at IS NULL;

-- name: create_readied_index
-- Finds messages that are held for too long.
CREATE INDEX ON messages (readied_at) WHERE readied_at IS NOT NULL;

-- name: insert
-- Stores a message, unless its id waits or is ready.
INSERT INTO messages (id, deadline, message_headers, message_key, message_value)
VALUES (%(id)s, %(deadline)s, %(headers)s, %(key)s, %(value)s)
ON CONFLICT (id) DO NOTHING;

-- name: exists
-- Whether an id waits or is ready.
SELECT 1 FROM messages WHERE id = %(id)s;

-- name: ready
-- Reserves all due messages.
UPDATE messages SET readied_at = %(now)s, readied_by = %(node)s
WHERE deadline <= %(until)s AND readied_at IS NULL
RETURNING id, message_headers, message_key, message_value;

-- name: delete
-- Removes published messages; returns the ids that existed.
DELETE FROM messages WHERE id = ANY(%(ids)s) RETURNING id;

-- name: stuck
-- The messages that have been ready for longer than their holder may hold them.
SELECT id, readied_at, readied_by FROM messages WHERE readied_at < %(before)s;

-- name: reset
-- Lets a message wait again, if no node has touched it since.
UPDATE messages SET readied_at = NULL, readied_by = NULL
WHERE id = %(id)s AND readied_at = %(readied_at)s AND readied_by = %(readied_by)s
RETURNING id;

-- name: count
-- Counts the messages that are due from a moment on.
SELECT count(*) FROM messages WHERE deadline >= %(from)s;

-- name: fill
-- Adds waiting messages, all due at one moment.
INSERT INTO messages (id, deadline, message_headers, message_key, message_value)
SELECT %(prefix)s || number, %(deadline)s, '[]', number::text, '{"task":"remind"}'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number;
