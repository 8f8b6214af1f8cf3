CREATE TABLE topics (
    uid INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    settings TEXT NOT NULL,
    dropped_at INTEGER
) STRICT;
CREATE UNIQUE INDEX topics_name ON topics (name);

-- life: 0 a message at ts; 1 the mark of a deleted one, its id taken until ts; 2 a dead letter since ts.
-- A body above the border lies in bodies, so that a lease does not rewrite it.
CREATE TABLE messages (
    no INTEGER PRIMARY KEY,
    topic INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    stripe INTEGER NOT NULL,
    id TEXT NOT NULL,
    life INTEGER NOT NULL DEFAULT 0,
    ts INTEGER NOT NULL,
    due INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    expires INTEGER,
    producer_group TEXT NOT NULL,
    lock_consumer TEXT,
    death TEXT,
    apart INTEGER NOT NULL DEFAULT 0,
    key BLOB,
    headers BLOB,
    body BLOB
) STRICT;
CREATE UNIQUE INDEX messages_id ON messages (topic, bucket, id);
CREATE INDEX messages_due ON messages (topic, stripe, ts, bucket, lock_consumer) WHERE life = 0;
CREATE INDEX messages_held ON messages (topic, lock_consumer, id)
    WHERE life = 0 AND lock_consumer IS NOT NULL;
CREATE INDEX messages_owned ON messages (topic, producer_group, id) WHERE life = 0;
CREATE INDEX messages_gone ON messages (ts) WHERE life = 1;
CREATE INDEX messages_dead ON messages (topic, ts, id) WHERE life = 2;

CREATE TABLE bodies (
    no INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
CREATE TRIGGER bodies_of_removed AFTER DELETE ON messages WHEN old.apart = 1
BEGIN DELETE FROM bodies WHERE no = old.no; END;
CREATE TRIGGER bodies_of_deleted AFTER UPDATE OF apart ON messages WHEN old.apart = 1
BEGIN DELETE FROM bodies WHERE no = old.no; END;
