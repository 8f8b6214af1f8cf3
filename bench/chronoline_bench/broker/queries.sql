-- name: create_table
-- The table of the hand-written queue; finished jobs are deleted.
CREATE TABLE jobs (
    id bigint PRIMARY KEY,
    due timestamptz NOT NULL,
    body bytea NOT NULL
);

-- name: create_index
-- Finds due jobs.
CREATE INDEX ON jobs (due);

-- name: empty
-- Empties the table before a measurement.
TRUNCATE jobs;

-- name: insert
-- Adds one job.
INSERT INTO jobs (id, due, body) VALUES (%(id)s, %(due)s, %(body)s);

-- name: take
-- Takes the next due jobs that no other consumer holds, until the transaction ends.
SELECT id, body FROM jobs WHERE due <= now() ORDER BY due LIMIT %(limit)s FOR UPDATE SKIP LOCKED;

-- name: delete
-- Deletes finished jobs.
DELETE FROM jobs WHERE id = ANY(%(ids)s);

-- name: count
-- Counts the jobs.
SELECT count(*) FROM jobs;

-- name: fill
-- Adds jobs that are due at one moment.
INSERT INTO jobs (id, due, body)
SELECT number, %(due)s, decode(repeat('00', %(body_bytes)s), 'hex')
FROM generate_series(0, %(count)s::bigint - 1) AS number;
