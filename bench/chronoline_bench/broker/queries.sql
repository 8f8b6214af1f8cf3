-- name: create_table
-- A queue as people write it by hand: one table, what has been done is deleted.
CREATE TABLE jobs (
    id bigint PRIMARY KEY,
    due timestamptz NOT NULL,
    body bytea NOT NULL
);

-- name: create_index
-- For what falls due.
CREATE INDEX ON jobs (due);

-- name: empty
-- For the next measurement.
TRUNCATE jobs;

-- name: insert
-- One job, in a transaction of its own.
INSERT INTO jobs (id, due, body) VALUES (%(id)s, %(due)s, %(body)s);

-- name: take
-- The next that are due, and that nobody else has; they are ours until the transaction ends.
SELECT id, body FROM jobs WHERE due <= now() ORDER BY due LIMIT %(limit)s FOR UPDATE SKIP LOCKED;

-- name: delete
-- What has been done.
DELETE FROM jobs WHERE id = ANY(%(ids)s);

-- name: count
-- How many there are.
SELECT count(*) FROM jobs;

-- name: fill
-- Jobs that are due at one moment.
INSERT INTO jobs (id, due, body)
SELECT number, %(due)s, decode(repeat('00', %(body_bytes)s), 'hex')
FROM generate_series(0, %(count)s::bigint - 1) AS number;
