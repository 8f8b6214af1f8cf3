-- Each statement names the index that serves it, and INDEXED BY fails where that cannot be used: the planner
-- has no choice, whatever sqlite_stat1 says. "NOT INDEXED" finds rows by their number. "+bucket" is compared but not
-- searched for: else topic, stripe and ts may be skipped.

-- name: insert_topic
-- Makes a topic; a taken name is a conflict.
INSERT INTO topics (uid, name, settings) VALUES (:uid, :name, :settings)
ON CONFLICT DO NOTHING;

-- name: name_taken
-- Whether a topic of that name is there, or is still being dropped.
SELECT 1 FROM topics WHERE name = :name;

-- name: topic
-- A live topic by its uid.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM topics WHERE uid = :uid AND dropped_at IS NULL;

-- name: floor
-- The floor of a live topic.
SELECT floor FROM topics WHERE uid = :uid AND dropped_at IS NULL;

-- name: served_topic
-- Whether a topic is live and not paused.
SELECT 1 FROM topics WHERE uid = :uid AND dropped_at IS NULL AND paused_at IS NULL;

-- name: topic_named
-- A live topic by its name.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM topics WHERE name = :name AND dropped_at IS NULL;

-- name: identity
-- The id of the store.
SELECT id FROM identity;

-- name: topics
-- All live topics.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM topics WHERE dropped_at IS NULL ORDER BY name;

-- name: unfinished_drops
-- Dropped topics whose names are not free yet.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM topics WHERE dropped_at IS NOT NULL ORDER BY name;

-- name: changed_topics
-- Live topics that were changed since they were created.
SELECT uid, name, settings, revision, paused_at, paused_by, pause_reason
FROM topics WHERE dropped_at IS NULL AND revision > 1 ORDER BY name;

-- name: change_topic
-- Changes the settings and the pause of a topic that has this revision.
UPDATE topics SET
    settings = :settings, paused_at = :paused_at, paused_by = :paused_by,
    pause_reason = :pause_reason, revision = revision + 1
WHERE uid = :uid AND dropped_at IS NULL AND revision = :revision
RETURNING uid;

-- name: drop_topic
-- Drops a topic, for every process at once.
UPDATE topics SET dropped_at = :now WHERE uid = :uid AND dropped_at IS NULL;

-- name: create
-- Puts a message on the timeline, if its id is free.
INSERT INTO messages
    (topic, bucket, stripe, id, ts, due, version, expires, producer_group, apart, key, headers, body,
    digest)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?14, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (topic, bucket, id) DO UPDATE SET
    life = 0, ts = excluded.ts, due = excluded.due, attempts = 0, expires = excluded.expires,
    version = max(messages.version + 1, excluded.version), producer_group = excluded.producer_group,
    lock_consumer = NULL, lock_session = NULL, death = NULL, apart = excluded.apart,
    key = excluded.key, headers = excluded.headers, body = excluded.body, digest = excluded.digest,
    early_cancel = NULL
WHERE messages.life = 1 AND messages.ts <= ?6
RETURNING no, version;

-- name: create_new
-- The same for many at once, when no id is taken; a taken one is passed over.
INSERT INTO messages
    (topic, bucket, stripe, id, ts, due, version, expires, producer_group, apart, key, headers, body,
    digest)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?14, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (topic, bucket, id) DO NOTHING;

-- name: replace
-- Cancels the message that has the id and creates the new one, for the owner.
INSERT INTO messages
    (topic, bucket, stripe, id, ts, due, version, expires, producer_group, apart, key, headers, body,
    digest)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?14, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (topic, bucket, id) DO UPDATE SET
    life = 0, ts = excluded.ts, due = excluded.due, attempts = 0, expires = excluded.expires,
    version = max(messages.version + 1, excluded.version), producer_group = excluded.producer_group,
    lock_consumer = NULL, lock_session = NULL, death = NULL, apart = excluded.apart,
    key = excluded.key, headers = excluded.headers, body = excluded.body, digest = excluded.digest,
    early_cancel = NULL
WHERE messages.life = 1 AND messages.ts <= ?6
    OR messages.producer_group = excluded.producer_group
    AND (messages.life <> 0 OR messages.ts <= ?6 OR messages.lock_consumer IS NULL)
    AND (messages.life = 1 AND messages.digest = excluded.digest) IS NOT TRUE
RETURNING no, version;

-- name: put_body
-- Keeps a large body apart from the row that moves.
INSERT OR REPLACE INTO bodies (no, body) VALUES (:no, :body);

-- name: body
-- A large body.
SELECT body FROM bodies WHERE no = :no;

-- name: due
-- The oldest that can be leased in a cell, from the index alone.
SELECT ts, no, lock_consumer FROM messages INDEXED BY messages_due
WHERE topic = :topic AND stripe = :stripe AND life = 0 AND ts <= :horizon
    AND +bucket >= :start AND +bucket < :stop AND (ts <= :now OR lock_consumer IS NULL)
ORDER BY ts LIMIT :limit;

-- name: due_at_version
-- A message that can be leased, by its version.
SELECT no, lock_consumer FROM messages INDEXED BY messages_id
WHERE topic = :topic AND bucket = :bucket AND id = :id AND version = :version AND life = 0
    AND (ts <= :now OR ts <= :horizon AND lock_consumer IS NULL);

-- name: take
-- Leases messages, except those that must go to the dead letters.
UPDATE messages NOT INDEXED SET
    ts = max(due, :now) + :lease_ms, lock_consumer = :consumer, lock_session = :session,
    version = version + 1,
    attempts = attempts + (lock_consumer IS NOT NULL)
WHERE no IN (SELECT value FROM json_each(:nos))
    AND attempts + (lock_consumer IS NOT NULL) < :max_attempts
    AND (expires IS NULL OR expires > max(due, :now))
    AND (:max_lateness_ms IS NULL OR due + :max_lateness_ms >= :now)
RETURNING id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers,
    body, apart, no;

-- name: dead_letter
-- Sends a message to the dead letters instead.
UPDATE messages NOT INDEXED SET
    life = 2, ts = :now, lock_consumer = NULL, lock_session = NULL, version = version + 1,
    attempts = attempts + (lock_consumer IS NOT NULL),
    death = CASE
        WHEN attempts + (lock_consumer IS NOT NULL) >= :max_attempts THEN 'attempts'
        WHEN expires <= max(due, :now) THEN 'expired'
        ELSE 'max_lateness'
    END
WHERE no = :no
RETURNING id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers,
    death;

-- name: held_live
-- A consumer's live leases.
SELECT no, lock_session FROM messages INDEXED BY messages_held
WHERE topic = :topic AND lock_consumer = :consumer AND life = 0 AND ts > :now AND id > :after
ORDER BY id LIMIT :limit;

-- name: resume
-- Gives a lease back to a consumer that returned, under a new version.
UPDATE messages NOT INDEXED SET version = version + 1, lock_session = :session WHERE no = :no
RETURNING id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers,
    body, apart, no;

-- name: extend
-- Moves the end of a live lease.
UPDATE messages INDEXED BY messages_id SET ts = :to, version = version + 1
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND lock_consumer = :name AND version = :version AND ts > :now AND :to >= max(:now, due) + :min_lease_ms
RETURNING version;

-- name: release
-- Gives a message back into the future.
UPDATE messages INDEXED BY messages_id SET ts = :to, due = :to, lock_consumer = NULL, version = version + 1
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND lock_consumer = :name AND version = :version AND ts > :now AND :to >= :now + :min_lease_ms
RETURNING version;

-- name: retry
-- Gives a message back after a failed attempt, or sends it to the dead letters after the last.
UPDATE messages INDEXED BY messages_id SET
    attempts = attempts + 1, lock_consumer = NULL, version = version + 1,
    life = CASE WHEN attempts + 1 >= :max_attempts THEN 2 ELSE 0 END,
    death = CASE WHEN attempts + 1 >= :max_attempts THEN 'attempts' END,
    ts = CASE WHEN attempts + 1 >= :max_attempts THEN :now ELSE :to END,
    due = CASE WHEN attempts + 1 >= :max_attempts THEN due ELSE :to END
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND lock_consumer = :name AND version = :version AND ts > :now AND :to >= :now + :min_lease_ms
RETURNING version;

-- name: bury
-- Sends a message to the dead letters, for a reason that its holder gives.
UPDATE messages INDEXED BY messages_id SET
    life = 2, ts = :now, death = :reason, attempts = attempts + 1, lock_consumer = NULL,
    version = version + 1
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND lock_consumer = :name AND version = :version AND ts > :now
RETURNING version;

-- name: unreserve
-- Gives a message back as it was.
UPDATE messages INDEXED BY messages_id SET ts = due, lock_consumer = NULL, version = version + 1
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND lock_consumer = :name AND version = :version AND ts > :now
RETURNING version;

-- name: ack
-- Marks a message as deleted by its holder.
UPDATE messages INDEXED BY messages_id SET
    life = 1, ts = :until, version = version + 1, apart = 0, key = NULL, headers = NULL, body = NULL
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND lock_consumer = :name AND version = :version AND ts > :now
RETURNING version;

-- name: ack_remove
-- Removes a message for its holder, where no mark is needed.
DELETE FROM messages INDEXED BY messages_id
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND lock_consumer = :name AND version = :version AND ts > :now
    AND version <= (SELECT floor FROM topics WHERE uid = :topic)
RETURNING version + 1;

-- name: cancel
-- Marks a message as deleted by its owner.
UPDATE messages INDEXED BY messages_id SET
    life = 1, ts = :until, version = version + 1, lock_consumer = NULL, lock_session = NULL,
    apart = 0, key = NULL, headers = NULL, body = NULL
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND producer_group = :name AND (ts <= :now OR lock_consumer IS NULL)
    AND (:version = 0 OR version = :version)
RETURNING version;

-- name: cancel_remove
-- Removes a message for its owner, where no mark is needed.
DELETE FROM messages INDEXED BY messages_id
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND producer_group = :name AND (ts <= :now OR lock_consumer IS NULL)
    AND (:version = 0 OR version = :version)
    AND version <= (SELECT floor FROM topics WHERE uid = :topic)
RETURNING version + 1;

-- name: reschedule
-- Moves a message for its owner.
UPDATE messages INDEXED BY messages_id SET
    ts = :to, due = :to, lock_consumer = NULL, lock_session = NULL, version = version + 1,
    attempts = attempts + (lock_consumer IS NOT NULL), expires = coalesce(:expires, expires)
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0
    AND producer_group = :name AND (ts <= :now OR lock_consumer IS NULL)
    AND (:version = 0 OR version = :version)
    AND coalesce(coalesce(:expires, expires) > max(:to, :now), TRUE)
RETURNING version;

-- name: redrive
-- Puts a dead letter back on the timeline.
UPDATE messages INDEXED BY messages_id SET
    life = 0, ts = :to, due = :to, attempts = 0, death = NULL, lock_session = NULL,
    version = version + 1,
    expires = CASE WHEN expires > max(:to, :now) THEN expires END
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 2
    AND (:name = '' OR producer_group = :name)
    AND (:version = 0 OR version = :version)
RETURNING version;

-- name: discard
-- Marks a dead letter as deleted.
UPDATE messages INDEXED BY messages_id SET
    life = 1, ts = :until, version = version + 1, lock_consumer = NULL, lock_session = NULL,
    death = NULL,
    apart = 0, key = NULL, headers = NULL, body = NULL
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 2
    AND (:name = '' OR producer_group = :name)
    AND (:version = 0 OR version = :version)
RETURNING version;

-- name: discard_remove
-- Removes a dead letter, where no mark is needed.
DELETE FROM messages INDEXED BY messages_id
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 2
    AND (:name = '' OR producer_group = :name)
    AND (:version = 0 OR version = :version)
    AND version <= (SELECT floor FROM topics WHERE uid = :topic)
RETURNING version + 1;

-- name: row
-- The columns of a row that the guards read, with its body.
SELECT life, ts, producer_group, lock_consumer, version, due, expires, lock_session, digest, early_cancel, body,
    apart, no
FROM messages INDEXED BY messages_id
WHERE topic = :topic AND bucket = :bucket AND id = :id
    AND EXISTS (SELECT 1 FROM topics WHERE uid = :topic AND dropped_at IS NULL);

-- name: lookup
-- A message by its id.
SELECT id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers
FROM messages INDEXED BY messages_id
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 0;

-- name: select
-- The oldest messages of a cell.
SELECT id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers
FROM messages INDEXED BY messages_due
WHERE topic = :topic AND stripe = :stripe AND life = 0 AND ts <= :max_ts
    AND +bucket >= :start AND +bucket < :stop
ORDER BY ts LIMIT :limit;

-- name: select_held
-- Messages that name a consumer as their holder.
SELECT id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers
FROM messages INDEXED BY messages_held
WHERE topic = :topic AND lock_consumer = :consumer AND life = 0 AND id > :after AND id >= :first
    AND (:session IS NULL OR lock_session = :session)
ORDER BY id LIMIT :limit;

-- name: select_owned
-- Messages of a producer group.
SELECT id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers
FROM messages INDEXED BY messages_owned
WHERE topic = :topic AND producer_group = :producer_group AND life = 0 AND id > :after AND id >= :first
ORDER BY id LIMIT :limit;

-- name: select_keys
-- Messages of a bucket, by id.
SELECT id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers
FROM messages INDEXED BY messages_id
WHERE topic = :topic AND bucket = :bucket AND life = 0 AND id > :after AND id >= :first AND id < :end
ORDER BY id LIMIT :limit;

-- name: next_group
-- The next producer group that has messages.
SELECT producer_group FROM messages INDEXED BY messages_owned
WHERE topic = :topic AND producer_group > :after AND life = 0 ORDER BY producer_group LIMIT 1;

-- name: count_owned
-- The number of messages of a producer group, up to a bound, from the index alone.
SELECT count(*) FROM (
    SELECT 1 FROM messages INDEXED BY messages_owned
    WHERE topic = :topic AND producer_group = :producer_group AND life = 0 LIMIT :most
);

-- name: next_ts
-- The oldest position of a cell.
SELECT ts FROM messages INDEXED BY messages_due
WHERE topic = :topic AND stripe = :stripe AND life = 0 AND +bucket >= :start AND +bucket < :stop
ORDER BY ts LIMIT 1;

-- name: forecast
-- Counts of a cell by step and status, from the index alone.
SELECT (ts - :from) / :step_ms AS step,
    sum(ts <= :now), sum(ts > :now AND lock_consumer IS NOT NULL),
    sum(ts > :now AND lock_consumer IS NULL)
FROM messages INDEXED BY messages_due
WHERE topic = :topic AND stripe = :stripe AND life = 0 AND ts >= :from AND ts < :end
    AND +bucket >= :start AND +bucket < :stop
GROUP BY step;

-- name: scan
-- The messages of a cell behind a place.
SELECT id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers
FROM messages INDEXED BY messages_due
WHERE topic = :topic AND stripe = :stripe AND life = 0 AND ts >= :from AND ts < :end
    AND +bucket >= :start AND +bucket < :stop AND (ts, id) > (:from, :after)
ORDER BY ts, id LIMIT :limit;

-- name: scan_held
-- The messages of a topic that name a holder, behind a place.
SELECT id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers
FROM messages INDEXED BY messages_held
WHERE topic = :topic AND lock_consumer IS NOT NULL AND life = 0
    AND (lock_consumer, id) > (:consumer, :after)
ORDER BY lock_consumer, id LIMIT :limit;

-- name: dead_letters
-- The oldest dead letters.
SELECT id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers,
    death
FROM messages INDEXED BY messages_dead
WHERE topic = :topic AND life = 2 AND (ts, id) > (:died, :after)
ORDER BY ts, id LIMIT :limit;

-- name: raise_floor
-- New messages of a topic begin above its floor; it never sinks.
UPDATE topics SET floor = :settled - 1 WHERE uid = :topic AND floor < :settled - 1;

-- name: purge_marks
-- Removes marks whose time is over, when their versions are settled. Their topics' floors have to be raised.
DELETE FROM messages NOT INDEXED WHERE no IN (
    SELECT no FROM messages INDEXED BY messages_gone
    WHERE life = 1 AND ts <= :now AND version < :settled
    ORDER BY ts LIMIT :limit
)
RETURNING topic;

-- name: topics_without_dead_letters
-- Topics that keep no dead letters, and have some.
SELECT uid FROM topics
WHERE dropped_at IS NULL AND json_extract(settings, '$.dead_letters') = 0
    AND EXISTS (
        SELECT 1 FROM messages INDEXED BY messages_dead WHERE topic = topics.uid AND life = 2
    );

-- name: purge_dead
-- Removes dead letters of a topic that keeps none, when their versions are settled. Its floor has
-- to be raised.
DELETE FROM messages NOT INDEXED WHERE no IN (
    SELECT no FROM messages INDEXED BY messages_dead
    WHERE topic = :topic AND life = 2 AND version < :settled LIMIT :limit
);

-- name: dropped_topics
-- Dropped topics whose messages are not all removed.
SELECT uid FROM topics WHERE dropped_at IS NOT NULL;

-- name: purge_dropped
-- Removes messages of a dropped topic.
DELETE FROM messages NOT INDEXED WHERE no IN (
    SELECT no FROM messages INDEXED BY messages_id WHERE topic = :topic LIMIT :limit
);

-- name: forget_topic
-- Frees the name of a dropped topic without messages.
DELETE FROM topics WHERE uid = :topic AND dropped_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM messages INDEXED BY messages_id WHERE topic = :topic);

-- name: claim_inputs
-- Claims partitions that nobody holds, and the holder's own again.
INSERT INTO inputs (source, partition, position, holder, until_ms)
SELECT :source, value->>0, value->>1, :holder, :until FROM json_each(:starts) WHERE true
ON CONFLICT DO UPDATE SET holder = :holder, fence = fence + 1, until_ms = :until
WHERE holder IS NULL OR holder = :holder OR until_ms <= :now
RETURNING partition, fence, position;

-- name: renew_claims
-- Moves the ends of live claims.
UPDATE inputs SET until_ms = :until
FROM json_each(:claims) c
WHERE source = c.value->>0 AND partition = c.value->>1 AND holder = c.value->>2
    AND fence = c.value->>3 AND until_ms > :now
RETURNING source, partition, position;

-- name: release_claims
-- Gives claims up.
UPDATE inputs SET holder = NULL, until_ms = 0
FROM json_each(:claims) c
WHERE source = c.value->>0 AND partition = c.value->>1 AND holder = c.value->>2 AND fence = c.value->>3;

-- name: positions
-- Where the partitions of live claims stand.
SELECT source, partition, position
FROM json_each(:claims) c
JOIN inputs ON source = c.value->>0 AND partition = c.value->>1
WHERE holder = c.value->>2 AND fence = c.value->>3 AND until_ms > :now;

-- name: move_inputs
-- Moves positions, never backwards, and adds to the counts.
UPDATE inputs SET
    position = max(position, m.value->>2), accepted = accepted + (m.value->>3),
    ignored = ignored + (m.value->>4), rejected = rejected + (m.value->>5),
    cancelled = cancelled + (m.value->>6), rescheduled = rescheduled + (m.value->>7),
    missed = missed + (m.value->>8), withdrawn = withdrawn + (m.value->>9)
FROM json_each(:moves) m
WHERE source = m.value->>0 AND partition = m.value->>1;

-- name: input_accounts
-- The accounts of a source.
SELECT partition, position, holder, until_ms, fence, accepted, ignored, rejected, cancelled, rescheduled, missed,
    withdrawn
FROM inputs WHERE source = :source ORDER BY partition;

-- name: forget_inputs
-- Deletes the accounts of partitions that nobody claims.
DELETE FROM inputs WHERE source = :source AND (holder IS NULL OR until_ms <= :now)
RETURNING partition;

-- name: reject
-- Sends messages that were just created to the dead letters.
UPDATE messages NOT INDEXED SET life = 2, death = 'rejected', ts = :now, version = version + 1
WHERE no IN (
    SELECT m.no FROM json_each(:keys) key CROSS JOIN messages m INDEXED BY messages_id
    WHERE m.topic = :topic AND m.bucket = key.value->>0 AND m.id = key.value->>1
);

-- name: restore
-- Gives a message that was just created its saved history.
UPDATE messages INDEXED BY messages_id SET
    due = :due, ts = CASE WHEN :death IS NULL THEN :due ELSE :died END, attempts = :attempts,
    life = CASE WHEN :death IS NULL THEN 0 ELSE 2 END, death = :death
WHERE topic = :topic AND bucket = :bucket AND id = :id;

-- name: keep_letter
-- Copies a dead letter to a new key, with one more header.
INSERT INTO messages
    (topic, bucket, stripe, id, life, ts, due, version, attempts, expires, producer_group, lock_session,
    death, apart, key, headers, body, digest)
SELECT topic, :kept_bucket, :kept_stripe, :kept_id, life, ts, due, version, attempts, expires,
    producer_group, lock_session, death, apart, key, CAST(coalesce(headers, x'') || :header AS BLOB), body,
    digest
FROM messages INDEXED BY messages_id
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life = 2
ON CONFLICT (topic, bucket, id) DO NOTHING
RETURNING no, apart;

-- name: keep_body
-- Copies the large body of a dead letter to the row that keeps it.
INSERT INTO bodies (no, body)
SELECT :no, bodies.body FROM messages INDEXED BY messages_id JOIN bodies ON bodies.no = messages.no
WHERE messages.topic = :topic AND messages.bucket = :bucket AND messages.id = :id;

-- name: mark_early
-- Makes the mark of a cancel that waits for its create.
INSERT INTO messages (topic, bucket, stripe, id, life, ts, due, version, producer_group, early_cancel)
VALUES (:topic, :bucket, :stripe, :id, 1, :until, :until, :version, :producer_group, :partition)
ON CONFLICT (topic, bucket, id) DO UPDATE SET
    ts = excluded.ts, version = max(messages.version + 1, excluded.version),
    producer_group = excluded.producer_group, lock_consumer = NULL, lock_session = NULL,
    digest = NULL, early_cancel = excluded.early_cancel
WHERE messages.life = 1 AND (messages.ts <= :now OR messages.early_cancel IS NOT NULL)
RETURNING id;

-- name: free
-- Turns a dead letter or a mark into a mark that takes no id.
UPDATE messages INDEXED BY messages_id SET
    life = 1, ts = :until, version = version + 1, lock_consumer = NULL, lock_session = NULL,
    death = NULL, apart = 0, key = NULL, headers = NULL, body = NULL, digest = NULL, early_cancel = NULL
WHERE topic = :topic AND bucket = :bucket AND id = :id AND life <> 0;

-- name: beat
-- Says that a member is alive.
INSERT INTO members ("group", name, until_ms, details) VALUES (:group, :name, :until, :details)
ON CONFLICT DO UPDATE SET until_ms = :until, details = :details;

-- name: forget_members
-- Forgets members that died long ago.
DELETE FROM members WHERE until_ms <= :before;

-- name: members
-- The members of a group.
SELECT name, until_ms, stopping, details FROM members WHERE "group" = :group ORDER BY name;

-- name: live_groups
-- The groups with a member that is alive.
SELECT DISTINCT "group" FROM members WHERE until_ms > :now;

-- name: ask_to_stop
-- Asks one member, or all, to stop.
UPDATE members SET stopping = 1 WHERE "group" = :group AND (:name IS NULL OR name = :name)
RETURNING name;

-- name: leave
-- Forgets a member.
DELETE FROM members WHERE "group" = :group AND name = :name;

-- name: insert_schedule
-- Makes a schedule on a live topic; that of a dropped topic does not keep its name.
INSERT INTO schedules (name, uid, topic, version, next_ms, paused, producer_group, rule, key, headers, body)
SELECT :name, :uid, :topic, :version, :next_ms, :paused, :producer_group, :rule, :key, :headers, :body
FROM topics WHERE uid = :topic AND dropped_at IS NULL
ON CONFLICT (name) DO UPDATE SET
    uid = excluded.uid, topic = excluded.topic, version = excluded.version, next_ms = excluded.next_ms,
    paused = excluded.paused, producer_group = excluded.producer_group, rule = excluded.rule,
    key = excluded.key, headers = excluded.headers, body = excluded.body
WHERE NOT EXISTS (SELECT 1 FROM topics t WHERE t.uid = schedules.topic AND t.dropped_at IS NULL)
    AND (schedules.topic <> 0 OR (excluded.next_ms <= schedules.next_ms) IS NOT TRUE)
RETURNING name;

-- name: replace_schedule
-- Puts another state in the place of one.
UPDATE schedules SET
    uid = :uid, topic = :topic, version = :version, next_ms = :next_ms, paused = :paused,
    producer_group = :producer_group, rule = :rule, key = :key, headers = :headers, body = :body
WHERE name = :name AND uid = :was_uid AND version = :was_version
    AND EXISTS (SELECT 1 FROM topics t WHERE t.uid = :topic AND t.dropped_at IS NULL)
RETURNING name;

-- name: remove_schedule
-- Leaves of a schedule in a state the moment after which another of its name begins.
UPDATE schedules SET
    topic = 0, version = version + 1, next_ms = :floor, paused = 1, key = NULL, headers = NULL, body = NULL
WHERE name = :name AND uid = :uid AND version = :version
RETURNING name;

-- name: schedule_floor
-- The moment after which a schedule of a name begins.
SELECT next_ms FROM schedules WHERE name = :name AND topic = 0;

-- name: move_schedules
-- Moves schedules of live topics to their next times.
UPDATE schedules SET next_ms = move.value ->> 3, version = version + 1
FROM json_each(:moves) AS move
WHERE name = move.value ->> 0 AND uid = move.value ->> 1 AND version = move.value ->> 2 AND paused = 0
    AND EXISTS (SELECT 1 FROM topics t WHERE t.uid = schedules.topic AND t.dropped_at IS NULL)
RETURNING name;

-- name: schedule_named
-- A schedule of a live topic.
SELECT s.name, s.uid, s.topic, s.version, s.next_ms, s.paused, s.producer_group, s.rule, s.key, s.headers, s.body
FROM schedules s CROSS JOIN topics t WHERE s.name = :name AND t.uid = s.topic AND t.dropped_at IS NULL;

-- name: schedules
-- Schedules of live topics by name, without their bodies.
SELECT s.name, s.uid, s.topic, s.version, s.next_ms, s.paused, s.producer_group, s.rule, s.key, s.headers, NULL
FROM schedules s CROSS JOIN topics t
WHERE s.name > :after AND (:topic IS NULL OR s.topic = :topic) AND t.uid = s.topic AND t.dropped_at IS NULL
ORDER BY s.name LIMIT :limit;

-- name: count_schedules
-- The number of schedules of a topic, up to a number.
SELECT count(*) FROM (SELECT 1 FROM schedules INDEXED BY schedules_topic WHERE topic = :topic LIMIT :most);

-- name: due_schedules
-- Schedules by their next times.
SELECT name, uid, topic, version, next_ms, paused, producer_group, rule, key, headers, body
FROM schedules INDEXED BY schedules_next
WHERE paused = 0 AND next_ms <= :before AND (next_ms, name) > (:after_ms, :after)
ORDER BY next_ms, name LIMIT :limit;

-- name: next_schedule
-- The earliest next time after a moment.
SELECT next_ms FROM schedules INDEXED BY schedules_next
WHERE paused = 0 AND next_ms > :after_ms ORDER BY next_ms LIMIT 1;

-- name: forget_schedules
-- Deletes the schedules of a dropped topic.
DELETE FROM schedules INDEXED BY schedules_topic WHERE topic = :topic RETURNING name;

-- name: forget_floors
-- Deletes what is left of schedules that were deleted long ago.
DELETE FROM schedules INDEXED BY schedules_topic WHERE topic = 0 AND next_ms <= :before;
