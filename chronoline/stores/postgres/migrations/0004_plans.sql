-- One index can serve each statement, whatever the statistics say. The primary key begins with the topic, and
-- a planner that takes the table for a small one reads a whole topic by it and sorts. So the indexes hold
-- expressions that only their own statements name: see "Plans" in docs/design/stores.md.
CREATE INDEX messages_due_only
    ON chronoline.messages ((topic + 0), stripe, ts, (bucket + 0), lock_consumer)
    INCLUDE (topic, bucket)  -- counts are read from the index alone, which needs the columns themselves
    WHERE life = 0;
CREATE INDEX messages_held_only
    ON chronoline.messages ((topic + 0), (CASE WHEN life = 0 THEN lock_consumer END), (id || ''))
    WHERE CASE WHEN life = 0 THEN lock_consumer END IS NOT NULL;
CREATE INDEX messages_owned_only
    ON chronoline.messages ((topic + 0), (CASE WHEN life = 0 THEN producer_group END), (id || ''))
    WHERE CASE WHEN life = 0 THEN producer_group END IS NOT NULL;
CREATE INDEX messages_dead_only ON chronoline.messages ((topic + 0), ts, (id || '')) WHERE life = 2;
-- Readers have to wait from here on, and no longer than this takes.
DROP INDEX chronoline.messages_due, chronoline.messages_held, chronoline.messages_owned,
    chronoline.messages_dead;
ALTER INDEX chronoline.messages_due_only RENAME TO messages_due;
ALTER INDEX chronoline.messages_held_only RENAME TO messages_held;
ALTER INDEX chronoline.messages_owned_only RENAME TO messages_owned;
ALTER INDEX chronoline.messages_dead_only RENAME TO messages_dead;
-- The statements that find rows by their key no longer depend on how many rows the table seems to have.
DELETE FROM chronoline.messages WHERE topic = 0 AND life = 3;
