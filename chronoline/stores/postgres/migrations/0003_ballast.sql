-- Rows of no topic, which nobody reads: the planner must never take the table for an empty one.
--
-- When all messages have been delivered, autovacuum notes that there are none. From then on, and until it
-- looks again, a table that was noted as empty counts as one row, however many there are: every statement
-- that looks for keys would then read the whole table once for each of them.
INSERT INTO chronoline.messages (topic, bucket, stripe, id, life, ts, due, version, producer_group)
SELECT 0, n, 0, 'ballast-' || n, 3, 0, 0, 0, 'ballast' FROM generate_series(0, 9999) AS n;
