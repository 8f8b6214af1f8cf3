-- name: log_id
-- The log that this index is tied to.
SELECT id FROM log;

-- name: tie
-- Ties the index to a log, once.
INSERT INTO log (only_row, id) VALUES (1, :id) ON CONFLICT DO NOTHING;

-- name: insert_topic
-- Makes a topic; a taken name is a conflict.
INSERT INTO topics (uid, name, partitions) VALUES (:uid, :name, :partitions)
ON CONFLICT DO NOTHING;

-- name: insert_head
-- Makes a partition.
INSERT INTO heads (topic, partition) VALUES (:topic, :partition);

-- name: topic
-- A topic by its name.
SELECT uid, name, partitions FROM topics WHERE name = :name;

-- name: topics
-- All topics.
SELECT uid, name, partitions FROM topics ORDER BY name;

-- name: delete_topic
-- Frees a topic's name.
DELETE FROM topics WHERE uid = :uid;

-- name: delete_heads
-- Nothing can be appended to a topic any more, and its readers see that.
DELETE FROM heads WHERE topic = :uid;

-- name: note_deleted
-- Notes that something may be left of a deleted topic.
INSERT INTO deleted_topics (uid) VALUES (:uid);

-- name: deleted_topics
-- Deleted topics of which something may be left.
SELECT uid FROM deleted_topics ORDER BY uid;

-- name: chunks_of_topic
-- Some chunks of a topic.
SELECT partition, first_sequence, object FROM chunks WHERE topic = :uid LIMIT :limit;

-- name: purge_cursors
-- Deletes some of the progress on a topic.
DELETE FROM cursors WHERE topic = :uid AND (reader_group, partition) IN (
    SELECT reader_group, partition FROM cursors WHERE topic = :uid LIMIT :limit
);

-- name: purge_members
-- Deletes the readers of a topic.
DELETE FROM members WHERE topic = :uid;

-- name: purge_groups
-- Deletes the groups of a topic.
DELETE FROM reader_groups WHERE topic = :uid;

-- name: purge_floors
-- Deletes what is known of a topic's sources: names of it can never be committed.
DELETE FROM floors WHERE topic = :uid;

-- name: forget_topic
-- Nothing is left of a topic.
DELETE FROM deleted_topics WHERE uid = :uid;

-- name: claim_object
-- Notes that an object is committed; a name is committed once, and never below a floor.
INSERT INTO objects (name, refs)
SELECT :name, :refs WHERE NOT EXISTS (
    SELECT 1 FROM floors WHERE prefix IN ('', :prefix) AND floor > :name
)
ON CONFLICT DO NOTHING;

-- name: floor_above
-- The floor that a name is below.
SELECT floor FROM floors WHERE prefix IN ('', :prefix) AND floor > :name;

-- name: settle_source
-- Names of a source before a floor are settled.
INSERT INTO floors (prefix, topic, floor) VALUES (:prefix, :topic, :floor)
ON CONFLICT DO UPDATE SET floor = max(floor, excluded.floor);

-- name: object
-- How often an object is referred to, and what its commit was answered.
SELECT refs, given FROM objects WHERE name = :name;

-- name: note_given
-- Notes what a commit is answered.
UPDATE objects SET given = :given WHERE name = :name;

-- name: advance
-- Gives a partition's next sequences away.
UPDATE heads SET next_sequence = next_sequence + :count, appended_ms = max(appended_ms, :now)
WHERE topic = :topic AND partition = :partition
RETURNING next_sequence - :count, appended_ms;

-- name: insert_chunk
-- Notes where events lie.
INSERT INTO chunks (topic, partition, first_sequence, count, object, start, length, appended_ms)
VALUES (:topic, :partition, :first, :count, :object, :start, :length, :appended);

-- name: heads
-- The ends of all partitions.
SELECT partition, first_sequence, next_sequence FROM heads WHERE topic = :topic ORDER BY partition;

-- name: chunks
-- Chunks in sequence, beginning with the one that holds a sequence.
SELECT partition, first_sequence, count, object, start, length, appended_ms FROM chunks
WHERE topic = :topic AND partition = :partition AND first_sequence >= coalesce((
    SELECT max(first_sequence) FROM chunks
    WHERE topic = :topic AND partition = :partition AND first_sequence <= :from
), 0) AND first_sequence + count > :from
ORDER BY first_sequence LIMIT :limit;

-- name: sequence_at
-- The first sequence that was committed at a moment or later, else where the partition ends. One statement: what
-- is committed between two would count as older.
SELECT coalesce((
    SELECT first_sequence FROM chunks
    WHERE topic = :topic AND partition = :partition AND appended_ms >= :ts
    ORDER BY appended_ms, first_sequence LIMIT 1
), next_sequence)
FROM heads WHERE topic = :topic AND partition = :partition;

-- name: open_group
-- Makes a group of a topic that there is.
INSERT INTO reader_groups (topic, reader_group, uid)
SELECT uid, :group, :uid FROM topics WHERE uid = :topic
ON CONFLICT DO NOTHING;

-- name: group_uid
-- Which group of that name it is.
SELECT uid FROM reader_groups WHERE topic = :topic AND reader_group = :group;

-- name: delete_group
-- Deletes a group.
DELETE FROM reader_groups WHERE topic = :topic AND reader_group = :group;

-- name: delete_cursors
-- Deletes the progress of a group.
DELETE FROM cursors WHERE topic = :topic AND reader_group = :group;

-- name: delete_members
-- Deletes the readers of a group.
DELETE FROM members WHERE topic = :topic AND reader_group = :group;

-- name: join
-- Says that a reader is there.
INSERT INTO members (topic, reader_group, member, until_ms)
VALUES (:topic, :group, :member, :until)
ON CONFLICT DO UPDATE SET until_ms = excluded.until_ms;

-- name: forget_members
-- Forgets readers that are gone.
DELETE FROM members WHERE topic = :topic AND reader_group = :group AND until_ms <= :now;

-- name: members
-- The readers of a group.
SELECT member FROM members
WHERE topic = :topic AND reader_group = :group ORDER BY member;

-- name: leave
-- Says that a reader is gone.
DELETE FROM members WHERE topic = :topic AND reader_group = :group AND member = :member;

-- name: hold
-- Takes a partition that nobody holds, or one's own again.
INSERT INTO cursors (topic, reader_group, partition, holder, fence, until_ms, sequence)
SELECT :topic, :group, :partition, :holder, 1, :until, first_sequence FROM heads
WHERE topic = :topic AND partition = :partition
ON CONFLICT DO UPDATE SET holder = :holder, fence = fence + 1, until_ms = :until
WHERE holder IS NULL OR holder = :holder OR until_ms <= :now
RETURNING fence, sequence;

-- name: renew
-- Moves the end of a live hold.
UPDATE cursors SET until_ms = :until
WHERE topic = :topic AND reader_group = :group AND partition = :partition
    AND fence = :fence AND holder = :holder AND until_ms > :now
RETURNING sequence;

-- name: progress
-- Notes the next sequence to read, never backwards.
UPDATE cursors SET sequence = :sequence
WHERE topic = :topic AND reader_group = :group AND partition = :partition
    AND fence = :fence AND holder = :holder AND until_ms > :now AND sequence <= :sequence
RETURNING until_ms;

-- name: let_go
-- Gives a partition up.
UPDATE cursors SET holder = NULL, until_ms = 0
WHERE topic = :topic AND reader_group = :group AND partition = :partition
    AND fence = :fence AND holder = :holder;

-- name: groups
-- The progress of all groups of a topic.
SELECT reader_group, partition, sequence, holder, until_ms FROM cursors
WHERE topic = :topic ORDER BY reader_group, partition;

-- name: seek
-- Sets a group's progress; the holder of the partition loses it.
INSERT INTO cursors (topic, reader_group, partition, sequence, fence)
VALUES (:topic, :group, :partition, :sequence, 1)
ON CONFLICT DO UPDATE SET sequence = :sequence, fence = fence + 1, holder = NULL, until_ms = 0;

-- name: untold
-- The partitions with events that nobody was told of.
SELECT partition FROM heads WHERE topic = :topic AND told < next_sequence ORDER BY partition;

-- name: begin_notice
-- Claims the right to tell of new events, unless somebody waits who will.
UPDATE heads SET told_since_ms = :now
WHERE topic = :topic AND partition = :partition AND told < next_sequence
    AND (told_since_ms = 0 OR told_since_ms NOT BETWEEN :now - :latency + 1 AND :now + :latency)
RETURNING next_sequence;

-- name: notice_wait
-- Since when somebody waits who will tell, where something is untold.
SELECT told_since_ms FROM heads
WHERE topic = :topic AND partition = :partition AND told < next_sequence;

-- name: end_notice
-- Notes what was told. The wait goes on if there is more, and ends in the same write if there is not.
UPDATE heads SET told = max(told, :sequence),
    told_since_ms = CASE WHEN next_sequence > :sequence THEN max(:now, :since + 1) ELSE 0 END
WHERE topic = :topic AND partition = :partition AND told_since_ms = :since
RETURNING next_sequence, told_since_ms;

-- name: untell
-- Forgets that events were told of, and who waits.
UPDATE heads SET told = min(told, :sequence), told_since_ms = 0
WHERE topic = :topic AND partition = :partition;

-- name: sweep
-- Marks an object that nobody committed: from now on nobody can. Below the floor nobody can anyway.
INSERT INTO objects (name, refs, swept_ms)
SELECT :name, -1, :now WHERE :name >= (SELECT floor FROM floors WHERE prefix = '')
ON CONFLICT DO NOTHING;

-- name: doomed
-- The chunks that end before a sequence.
SELECT first_sequence, count, object FROM chunks
WHERE topic = :topic AND partition = :partition AND first_sequence < :before
    AND first_sequence + count <= :before
ORDER BY first_sequence LIMIT :limit;

-- name: delete_chunk
-- Drops a chunk.
DELETE FROM chunks
WHERE topic = :topic AND partition = :partition AND first_sequence = :first AND object = :object;

-- name: unrefer
-- One chunk less lies in an object.
UPDATE objects SET refs = refs - 1 WHERE name = :object;

-- name: move_first
-- A partition begins later.
UPDATE heads SET first_sequence = max(first_sequence, :first)
WHERE topic = :topic AND partition = :partition;

-- name: unreferenced
-- Objects that no chunk lies in.
SELECT name FROM objects WHERE refs = 0 ORDER BY name LIMIT :limit;

-- name: forget
-- Forgets an object that was deleted. What its commit was answered stays known.
UPDATE objects SET refs = -2 WHERE name = :name AND refs = 0;

-- name: has_gone
-- Whether an object is gone whose name is before a floor.
SELECT 1 FROM objects INDEXED BY objects_gone WHERE refs < 0 AND name < :floor LIMIT 1;

-- name: raise_floor
-- From now on names before it are refused, unless they are known.
UPDATE floors SET floor = max(floor, :floor) WHERE prefix = '';

-- name: gone_names
-- Names of objects that are gone, below the floors. The floors are read first, whatever the planner knows.
SELECT name FROM floors CROSS JOIN objects INDEXED BY objects_gone
WHERE refs < 0 AND name >= prefix AND name < floor LIMIT :limit;

-- name: forget_name
-- Forgets an object that is gone.
DELETE FROM objects WHERE name = :name AND refs < 0;
