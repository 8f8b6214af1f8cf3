-- Rows are locked in the order of their key everywhere, and a head before objects, so that no two statements
-- wait for each other.
--
-- A key is compared by "= ANY (ARRAY[…])", and the order in which rows are locked is that of an expression:
-- neither is a reason to read a whole index in its order, which seems cheap where a table was noted as empty.

-- name: log_id
-- The log that this index is tied to.
SELECT id FROM chronoline_log.log;

-- name: tie
-- Ties the index to a log, once.
INSERT INTO chronoline_log.log (only_row, id) VALUES (1, %(id)s) ON CONFLICT DO NOTHING;

-- name: create_topic
-- Makes a topic and its partitions; a taken name is a conflict. The floor is locked: it is raised before we read it,
-- or after our partitions can be seen.
WITH lowest AS MATERIALIZED (
    SELECT floor FROM chronoline_log.floors WHERE prefix = '' FOR SHARE
), made AS (
    INSERT INTO chronoline_log.topics (uid, name, partitions)
    VALUES (%(uid)s, %(name)s, %(partitions)s)
    ON CONFLICT DO NOTHING RETURNING uid, partitions
), divided AS (
    INSERT INTO chronoline_log.heads (topic, floor, partition)
    SELECT made.uid, lowest.floor, generate_series(0, made.partitions - 1)
    FROM made CROSS JOIN lowest
)
SELECT uid FROM made;

-- name: topic
-- A topic by its name.
SELECT uid, name, partitions FROM chronoline_log.topics WHERE name = %(name)s;

-- name: topics
-- All topics.
SELECT uid, name, partitions FROM chronoline_log.topics ORDER BY name;

-- name: delete_topic
-- Frees a topic's name. Its heads go with it, so nothing can be appended any more, and its readers see that.
WITH gone AS (
    DELETE FROM chronoline_log.topics WHERE uid = %(uid)s RETURNING uid
), noted AS (
    INSERT INTO chronoline_log.deleted_topics (uid) SELECT uid FROM gone ON CONFLICT DO NOTHING
), head AS MATERIALIZED (
    SELECT topic, partition FROM chronoline_log.heads
    WHERE topic = %(uid)s ORDER BY partition FOR UPDATE
), headless AS (
    DELETE FROM chronoline_log.heads h USING head
    WHERE h.topic = ANY (ARRAY[head.topic]) AND h.partition = head.partition
)
SELECT uid, CASE WHEN %(word)s <> '' THEN pg_notify('chronoline_log', %(word)s) END FROM gone;

-- name: deleted_topics
-- Deleted topics of which something may be left.
SELECT uid FROM chronoline_log.deleted_topics ORDER BY uid;

-- name: purge_chunks
-- Deletes some chunks of a topic, and answers how many.
WITH doomed AS MATERIALIZED (
    SELECT ctid AS place, object FROM chronoline_log.chunks
    WHERE topic = %(uid)s ORDER BY partition, first_sequence LIMIT %(limit)s FOR UPDATE
), gone AS (
    DELETE FROM chronoline_log.chunks c USING doomed WHERE c.ctid = doomed.place
), freed AS MATERIALIZED (
    SELECT o.name, d.refs
    FROM (SELECT object, count(*) AS refs FROM doomed GROUP BY object) d
    JOIN chronoline_log.objects o ON o.name = ANY (ARRAY[d.object])
    ORDER BY o.name || '' FOR UPDATE OF o
), counted AS (
    UPDATE chronoline_log.objects o SET refs = o.refs - freed.refs FROM freed
    WHERE o.name = ANY (ARRAY[freed.name])
)
SELECT count(*) FROM doomed;

-- name: purge_cursors
-- Deletes some of the progress on a topic, and answers how much.
WITH doomed AS MATERIALIZED (
    SELECT topic, reader_group, partition FROM chronoline_log.cursors
    WHERE topic = %(uid)s ORDER BY reader_group, partition LIMIT %(limit)s FOR UPDATE
), gone AS (
    DELETE FROM chronoline_log.cursors c USING doomed
    WHERE c.topic = ANY (ARRAY[doomed.topic]) AND c.reader_group = doomed.reader_group
        AND c.partition = doomed.partition
)
SELECT count(*) FROM doomed;

-- name: purge_rest
-- Deletes the groups and sources of a topic.
WITH members AS (
    DELETE FROM chronoline_log.members WHERE topic = %(uid)s
), sources AS (
    DELETE FROM chronoline_log.floors WHERE topic = %(uid)s
)
DELETE FROM chronoline_log.reader_groups WHERE topic = %(uid)s;

-- name: forget_topic
-- Notes that nothing is left of a topic, if another who purges it has left nothing either.
DELETE FROM chronoline_log.deleted_topics d WHERE d.uid = %(uid)s
    AND (SELECT true FROM chronoline_log.chunks
        WHERE topic = %(uid)s ORDER BY partition, first_sequence LIMIT 1) IS NULL
    AND (SELECT true FROM chronoline_log.cursors
        WHERE topic = %(uid)s ORDER BY reader_group, partition LIMIT 1) IS NULL;

-- name: is_deleted
-- Whether something may be left of a deleted topic.
SELECT uid FROM chronoline_log.deleted_topics WHERE uid = %(uid)s;

-- name: open_source
-- Notes that a source appends, so that its commits have a row to lock.
INSERT INTO chronoline_log.floors (prefix, topic, floor, reached)
VALUES (%(prefix)s, %(topic)s, '', '')
ON CONFLICT DO NOTHING;

-- name: commit
-- Gives chunks their sequences, notes where they lie, and says so; nothing of it if the name is taken, or below the
-- floor of a head or of its source. Both are locked, so the floors are as they were raised last.
WITH head AS MATERIALIZED (
    SELECT h.topic, h.partition, h.next_sequence AS first_sequence,
        greatest(h.appended_ms, %(now)s) AS appended_ms, c.count, c.start, c.length, c.place
    FROM unnest(%(topic)b::bigint[], %(partition)b::integer[], %(count)b::bigint[],
        %(start)b::bigint[], %(length)b::bigint[]) WITH ORDINALITY
        AS c(topic, partition, count, start, length, place)
    JOIN chronoline_log.heads h ON h.topic = ANY (ARRAY[c.topic]) AND h.partition = c.partition
    WHERE h.floor <= %(name)s
    ORDER BY h.topic + 0, h.partition FOR UPDATE OF h
), source AS MATERIALIZED (
    SELECT floor FROM chronoline_log.floors WHERE prefix = %(prefix)s AND prefix <> '' FOR UPDATE
), claim AS (
    INSERT INTO chronoline_log.objects (name, refs, given)
    SELECT %(name)s, count(*), coalesce(array_agg(head.first_sequence ORDER BY head.place), '{}')
    FROM head
    HAVING count(*) = %(chunks)s AND NOT EXISTS (SELECT 1 FROM source WHERE floor > %(name)s)
    ON CONFLICT DO NOTHING RETURNING given
), settled AS (
    UPDATE chronoline_log.floors f
    SET floor = greatest(f.floor, %(floor)s), reached = greatest(f.reached, %(floor)s)
    FROM claim WHERE f.prefix = %(prefix)s AND f.prefix <> ''
), advanced AS (
    UPDATE chronoline_log.heads h
    SET next_sequence = head.first_sequence + head.count, appended_ms = head.appended_ms
    FROM claim CROSS JOIN head
    WHERE h.topic = ANY (ARRAY[head.topic]) AND h.partition = head.partition
), placed AS (
    INSERT INTO chronoline_log.chunks
        (topic, partition, first_sequence, count, object, start, length, appended_ms)
    SELECT head.topic, head.partition, head.first_sequence, head.count, %(name)s, head.start,
        head.length, head.appended_ms
    FROM claim CROSS JOIN head
)
SELECT given, CASE WHEN %(word)s <> '' THEN pg_notify('chronoline_log', %(word)s) END FROM claim;

-- name: object
-- How often an object is referred to, and what its commit was answered.
SELECT refs, given FROM chronoline_log.objects WHERE name = %(name)s;

-- name: floor_above
-- The floor that a name is below.
SELECT floor FROM chronoline_log.floors
WHERE prefix = ANY(ARRAY['', %(prefix)s]) AND floor > %(name)s LIMIT 1;

-- name: heads
-- The ends of all partitions.
SELECT partition, first_sequence, next_sequence FROM chronoline_log.heads
WHERE topic = %(topic)s ORDER BY partition;

-- name: chunks
-- Chunks in sequence, beginning with the one that holds a sequence.
SELECT partition, first_sequence, count, object, start, length, appended_ms FROM chronoline_log.chunks
WHERE topic = %(topic)s AND partition = %(partition)s AND first_sequence >= coalesce((
    SELECT first_sequence FROM chronoline_log.chunks
    WHERE topic = %(topic)s AND partition = %(partition)s AND first_sequence <= %(from)s
    ORDER BY first_sequence DESC LIMIT 1
), 0) AND first_sequence + count > %(from)s
ORDER BY first_sequence LIMIT %(limit)s;

-- name: sequence_at
-- The first sequence that was committed at a moment or later, else where the partition ends.
SELECT coalesce((
    SELECT first_sequence FROM chronoline_log.chunks
    WHERE topic = %(topic)s AND partition = %(partition)s AND appended_ms >= %(ts)s
    ORDER BY appended_ms, first_sequence LIMIT 1
), h.next_sequence)
FROM chronoline_log.heads h WHERE h.topic = %(topic)s AND h.partition = %(partition)s;

-- name: open_group
-- Makes a group of a topic that there is, and stays while we make it.
WITH topic AS MATERIALIZED (
    SELECT uid FROM chronoline_log.topics WHERE uid = %(topic)s FOR KEY SHARE
)
INSERT INTO chronoline_log.reader_groups (topic, reader_group, uid)
SELECT uid, %(group)s, %(uid)s FROM topic
ON CONFLICT DO NOTHING;

-- name: group_uid
-- Which group of that name it is.
SELECT uid FROM chronoline_log.reader_groups
WHERE topic = %(topic)s AND reader_group = %(group)s;

-- name: delete_group
-- Deletes a group. A reader that takes a partition for the first time delays the deletion until it has it.
DELETE FROM chronoline_log.reader_groups
WHERE topic = %(topic)s AND reader_group = %(group)s RETURNING uid;

-- name: delete_progress
-- Deletes the progress and the readers of a group, and answers how many.
WITH cursor AS (
    DELETE FROM chronoline_log.cursors
    WHERE topic = %(topic)s AND reader_group = %(group)s RETURNING 1
), member AS (
    DELETE FROM chronoline_log.members
    WHERE topic = %(topic)s AND reader_group = %(group)s RETURNING 1
)
SELECT (SELECT count(*) FROM cursor) + (SELECT count(*) FROM member);

-- name: join
-- Says that a reader is there, forgets those that are gone, and answers who is; not ourselves if topic or group
-- is deleted.
WITH topic AS MATERIALIZED (
    SELECT uid FROM chronoline_log.topics WHERE uid = %(topic)s FOR KEY SHARE
), me AS (
    INSERT INTO chronoline_log.members (topic, reader_group, member, until_ms)
    SELECT uid, %(group)s, %(member)s, %(until)s FROM topic
    WHERE %(group_uid)s::bigint IS NULL OR EXISTS (
        SELECT 1 FROM chronoline_log.reader_groups g
        WHERE g.topic = %(topic)s AND g.reader_group = %(group)s AND g.uid = %(group_uid)s
    )
    ON CONFLICT (topic, reader_group, member) DO UPDATE SET until_ms = excluded.until_ms
    RETURNING member
), gone AS MATERIALIZED (
    -- One that is just coming again has its row locked.
    SELECT member FROM chronoline_log.members
    WHERE topic = %(topic)s AND reader_group = %(group)s AND member <> %(member)s
        AND until_ms <= %(now)s
    FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM chronoline_log.members m USING gone
    WHERE m.topic = %(topic)s AND m.reader_group = %(group)s AND m.member = gone.member
)
SELECT member FROM chronoline_log.members
WHERE topic = %(topic)s AND reader_group = %(group)s AND member <> %(member)s
    AND until_ms > %(now)s
UNION ALL SELECT member FROM me;

-- name: leave
-- Says that a reader is gone.
DELETE FROM chronoline_log.members
WHERE topic = %(topic)s AND reader_group = %(group)s AND member = %(member)s;

-- name: hold
-- Takes those partitions that nobody holds, and one's own again, while topic and group are there.
WITH topic AS MATERIALIZED (
    SELECT uid FROM chronoline_log.topics WHERE uid = %(topic)s FOR KEY SHARE
), reading AS MATERIALIZED (
    SELECT uid FROM chronoline_log.reader_groups
    WHERE topic = %(topic)s AND reader_group = %(group)s FOR KEY SHARE
)
INSERT INTO chronoline_log.cursors AS c
    (topic, reader_group, partition, holder, fence, until_ms, sequence)
SELECT h.topic, %(group)s, h.partition, %(holder)s, 1, %(until)s, h.first_sequence
FROM chronoline_log.heads h
WHERE h.topic = %(topic)s AND h.partition = ANY(%(partitions)b::integer[])
    AND EXISTS (SELECT 1 FROM topic)
    AND (%(group_uid)s::bigint IS NULL
        OR EXISTS (SELECT 1 FROM reading WHERE uid = %(group_uid)s))
ORDER BY h.partition
ON CONFLICT (topic, reader_group, partition) DO UPDATE SET
    holder = excluded.holder, fence = c.fence + 1, until_ms = excluded.until_ms
WHERE c.holder IS NULL OR c.holder = excluded.holder OR c.until_ms <= %(now)s
RETURNING c.partition, c.fence, c.sequence;

-- name: renew
-- Moves the ends of live holds.
UPDATE chronoline_log.cursors c SET until_ms = %(until)s
FROM unnest(%(topic)b::bigint[], %(group)b::text[], %(partition)b::integer[], %(holder)b::text[],
    %(fence)b::bigint[]) AS b(topic, reader_group, partition, holder, fence)
WHERE c.topic = ANY (ARRAY[b.topic]) AND c.reader_group = b.reader_group AND c.partition = b.partition
    AND c.holder = b.holder AND c.fence = b.fence AND c.until_ms > %(now)s
RETURNING c.topic, c.reader_group, c.partition, c.sequence;

-- name: progress
-- Notes the next sequences to read, never backwards.
UPDATE chronoline_log.cursors c SET sequence = b.sequence
FROM unnest(%(topic)b::bigint[], %(group)b::text[], %(partition)b::integer[], %(holder)b::text[],
    %(fence)b::bigint[], %(sequence)b::bigint[])
    AS b(topic, reader_group, partition, holder, fence, sequence)
WHERE c.topic = ANY (ARRAY[b.topic]) AND c.reader_group = b.reader_group AND c.partition = b.partition
    AND c.holder = b.holder AND c.fence = b.fence AND c.until_ms > %(now)s
    AND c.sequence <= b.sequence
RETURNING c.topic, c.reader_group, c.partition, c.until_ms;

-- name: let_go
-- Gives partitions up.
UPDATE chronoline_log.cursors c SET holder = NULL, until_ms = 0
FROM unnest(%(topic)b::bigint[], %(group)b::text[], %(partition)b::integer[], %(holder)b::text[],
    %(fence)b::bigint[]) AS b(topic, reader_group, partition, holder, fence)
WHERE c.topic = ANY (ARRAY[b.topic]) AND c.reader_group = b.reader_group AND c.partition = b.partition
    AND c.holder = b.holder AND c.fence = b.fence;

-- name: groups
-- The progress of all groups of a topic.
SELECT reader_group, partition, sequence, holder, until_ms FROM chronoline_log.cursors
WHERE topic = %(topic)s ORDER BY reader_group, partition;

-- name: seek
-- Sets a group's progress; the holder of a partition loses it.
INSERT INTO chronoline_log.cursors AS c (topic, reader_group, partition, sequence, fence)
SELECT %(topic)s, %(group)s, b.partition, b.sequence, 1
FROM unnest(%(partition)b::integer[], %(sequence)b::bigint[]) AS b(partition, sequence)
ORDER BY b.partition
ON CONFLICT (topic, reader_group, partition) DO UPDATE SET
    sequence = excluded.sequence, fence = c.fence + 1, holder = NULL, until_ms = 0;

-- name: untold
-- The partitions with events that nobody was told of.
SELECT partition FROM chronoline_log.heads
WHERE topic = %(topic)s AND told < next_sequence ORDER BY partition;

-- name: begin_notice
-- Claims the right to tell of new events, unless somebody waits who will; answers since when.
WITH head AS MATERIALIZED (
    SELECT next_sequence, told_since_ms,
        told_since_ms = 0 OR told_since_ms NOT BETWEEN %(now)s - %(latency)s + 1
            AND %(now)s + %(latency)s AS is_free
    FROM chronoline_log.heads
    WHERE topic = %(topic)s AND partition = %(partition)s AND told < next_sequence
    FOR UPDATE
), begun AS (
    UPDATE chronoline_log.heads h SET told_since_ms = %(now)s FROM head
    WHERE h.topic = %(topic)s AND h.partition = %(partition)s AND head.is_free
)
SELECT next_sequence, told_since_ms, is_free FROM head;

-- name: end_notice
-- Notes what was told. The wait goes on if there is more, and ends in the same write if there is not.
UPDATE chronoline_log.heads SET told = greatest(told, %(sequence)s),
    told_since_ms = CASE
        WHEN next_sequence > %(sequence)s THEN greatest(%(now)s, %(since)s + 1) ELSE 0
    END
WHERE topic = %(topic)s AND partition = %(partition)s AND told_since_ms = %(since)s
RETURNING next_sequence, told_since_ms;

-- name: untell
-- Forgets that events were told of, and who waits.
UPDATE chronoline_log.heads SET told = least(told, %(sequence)s), told_since_ms = 0
WHERE topic = %(topic)s AND partition = %(partition)s;

-- name: sweep
-- Marks objects that nobody committed: from now on nobody can. Below the floor nobody can anyway.
INSERT INTO chronoline_log.objects (name, refs, swept_ms)
SELECT name, -1, %(now)s FROM unnest(%(names)b::text[]) AS name
WHERE name >= (SELECT reached FROM chronoline_log.floors WHERE prefix = '')
ORDER BY name
ON CONFLICT DO NOTHING;

-- name: swept
-- Of these objects, those that can never be committed.
SELECT wanted FROM unnest(%(names)b::text[]) AS wanted
LEFT JOIN chronoline_log.objects o ON o.name = ANY (ARRAY[wanted])
WHERE o.refs < 0 OR o.name IS NULL
    AND wanted < (SELECT reached FROM chronoline_log.floors WHERE prefix = '');

-- name: lock_head
-- Keeps a partition from being appended to, trimmed or compacted by others; answers its floor.
SELECT floor FROM chronoline_log.heads
WHERE topic = %(topic)s AND partition = %(partition)s FOR UPDATE;

-- name: trim
-- Drops the oldest chunks that end before a sequence, and answers how many events went.
WITH doomed AS MATERIALIZED (
    SELECT ctid AS place, first_sequence, count, object FROM chronoline_log.chunks
    WHERE topic = %(topic)s AND partition = %(partition)s AND first_sequence < %(before)s
        AND first_sequence + count <= %(before)s
    ORDER BY first_sequence LIMIT %(limit)s
), stop AS MATERIALIZED (
    SELECT max(first_sequence + count) AS sequence, sum(count)::bigint AS events FROM doomed
), gone AS (
    DELETE FROM chronoline_log.chunks c USING doomed WHERE c.ctid = doomed.place
), moved AS (
    UPDATE chronoline_log.heads h SET first_sequence = stop.sequence FROM stop
    WHERE h.topic = %(topic)s AND h.partition = %(partition)s AND stop.sequence IS NOT NULL
), freed AS MATERIALIZED (
    SELECT o.name, d.refs
    FROM (SELECT object, count(*) AS refs FROM doomed GROUP BY object) d
    JOIN chronoline_log.objects o ON o.name = ANY (ARRAY[d.object])
    ORDER BY o.name || '' FOR UPDATE OF o
), counted AS (
    UPDATE chronoline_log.objects o SET refs = o.refs - freed.refs FROM freed
    WHERE o.name = ANY (ARRAY[freed.name])
)
SELECT coalesce(events, 0) FROM stop;

-- name: claim_object
-- Notes that an object is committed; a name is committed once.
INSERT INTO chronoline_log.objects (name, refs) VALUES (%(name)s, 1)
ON CONFLICT DO NOTHING RETURNING name;

-- name: replace
-- Makes the first of some neighbouring chunks stand for all of them, and drops the others.
WITH old AS MATERIALIZED (
    SELECT ctid AS place, first_sequence, object FROM chronoline_log.chunks
    WHERE topic = %(topic)s AND partition = %(partition)s
        AND first_sequence >= %(first)s AND first_sequence < %(stop)s
    ORDER BY first_sequence
), gone AS (
    DELETE FROM chronoline_log.chunks c USING old
    WHERE c.ctid = old.place AND old.first_sequence > %(first)s
), put AS (
    UPDATE chronoline_log.chunks c SET count = %(count)s, object = %(name)s, start = %(start)s,
        length = %(length)s, appended_ms = %(appended)s
    FROM old WHERE c.ctid = old.place AND old.first_sequence = %(first)s
), freed AS MATERIALIZED (
    SELECT o.name, d.refs
    FROM (SELECT object, count(*) AS refs FROM old GROUP BY object) d
    JOIN chronoline_log.objects o ON o.name = ANY (ARRAY[d.object])
    ORDER BY o.name || '' FOR UPDATE OF o
)
UPDATE chronoline_log.objects o SET refs = o.refs - freed.refs FROM freed
WHERE o.name = ANY (ARRAY[freed.name]);

-- name: unreferenced
-- Objects that no chunk lies in.
SELECT name FROM chronoline_log.objects WHERE refs = 0 ORDER BY name LIMIT %(limit)s;

-- name: forget
-- Forgets objects that were deleted. What their commits were answered stays known.
UPDATE chronoline_log.objects o SET refs = -2
FROM unnest(%(names)b::text[]) AS wanted
WHERE o.name = ANY (ARRAY[wanted]) AND o.refs + 0 = 0;

-- name: has_gone
-- Whether an object is gone whose name is before a floor.
SELECT 1 FROM chronoline_log.objects WHERE refs < 0 AND name < %(floor)s LIMIT 1;

-- name: raise_floor
-- The floor of topics that are made from now on.
UPDATE chronoline_log.floors SET floor = greatest(floor, %(floor)s) WHERE prefix = '';

-- name: raise_heads
-- The floor of a topic's partitions: commits of names before it are refused.
WITH head AS MATERIALIZED (
    SELECT topic, partition FROM chronoline_log.heads
    WHERE topic = %(topic)s AND floor < %(floor)s ORDER BY partition FOR UPDATE
)
UPDATE chronoline_log.heads h SET floor = %(floor)s FROM head
WHERE h.topic = ANY (ARRAY[head.topic]) AND h.partition = head.partition;

-- name: reach_floor
-- All partitions have a floor: names before it can be forgotten.
UPDATE chronoline_log.floors SET reached = greatest(reached, %(floor)s) WHERE prefix = '';

-- name: forget_names
-- Forgets some objects that are gone, below the floors, and answers how many. The floors are read first, whatever
-- the planner knows.
WITH old AS MATERIALIZED (
    SELECT o.name FROM chronoline_log.floors f CROSS JOIN LATERAL (
        SELECT name FROM chronoline_log.objects
        WHERE refs < 0 AND name >= f.prefix AND name < f.reached ORDER BY name LIMIT %(limit)s
    ) o LIMIT %(limit)s
), locked AS MATERIALIZED (
    SELECT o.name FROM chronoline_log.objects o JOIN old ON o.name = ANY (ARRAY[old.name])
    ORDER BY o.name || '' FOR UPDATE OF o
), gone AS (
    DELETE FROM chronoline_log.objects o USING locked
    WHERE o.name = ANY (ARRAY[locked.name])
)
SELECT count(*) FROM locked;
