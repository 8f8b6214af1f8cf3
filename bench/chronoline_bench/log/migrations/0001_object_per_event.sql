CREATE TABLE partitions (
    partition INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE consumers (
    consumer TEXT NOT NULL,
    partition INTEGER NOT NULL,
    sequence INTEGER NOT NULL DEFAULT 0,
    thread TEXT,
    expires_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, partition)
) STRICT, WITHOUT ROWID;
