-- name: insert_partition
-- Makes a partition.
INSERT INTO partitions (partition) VALUES (:partition) ON CONFLICT DO NOTHING;

-- name: reserve
-- Takes a partition's next sequence number.
UPDATE partitions SET sequence = sequence + 1 WHERE partition = :partition RETURNING sequence - 1;

-- name: end
-- The sequence number of the partition's next event.
SELECT sequence FROM partitions WHERE partition = :partition;

-- name: activate
-- Makes a consumer active on a partition, unless another thread of it is.
INSERT INTO consumers (consumer, partition, thread, expires_ms)
VALUES (:consumer, :partition, :thread, :expires)
ON CONFLICT DO UPDATE SET thread = :thread, expires_ms = :expires
WHERE thread IS NULL OR expires_ms < :now
RETURNING sequence;

-- name: progress
-- Sets a consumer's sequence number and renews its lock, if the lock is still its own.
UPDATE consumers SET sequence = :sequence, expires_ms = :expires
WHERE consumer = :consumer AND partition = :partition AND thread = :thread;

-- name: deactivate
-- Makes a consumer inactive.
UPDATE consumers SET thread = NULL
WHERE consumer = :consumer AND partition = :partition AND thread = :thread;
