CREATE TABLE topics (
    uid INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    partitions INTEGER NOT NULL
) STRICT;

CREATE TABLE heads (
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL DEFAULT 0,
    next_sequence INTEGER NOT NULL DEFAULT 0,
    appended_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, partition)
) STRICT, WITHOUT ROWID;

-- refs: in how many chunks it lies; -1 an orphan that was swept and can never be committed.
CREATE TABLE objects (
    name TEXT PRIMARY KEY,
    refs INTEGER NOT NULL,
    swept_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX objects_unreferenced ON objects (name) WHERE refs = 0;
CREATE INDEX objects_swept ON objects (swept_ms) WHERE refs = -1;

CREATE TABLE chunks (
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    count INTEGER NOT NULL,
    object TEXT NOT NULL,
    start INTEGER NOT NULL,
    length INTEGER NOT NULL,
    appended_ms INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, first_sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX chunks_appended ON chunks (topic, partition, appended_ms);
CREATE INDEX chunks_object ON chunks (object);

CREATE TABLE cursors (
    topic INTEGER NOT NULL,
    reader_group TEXT NOT NULL,
    partition INTEGER NOT NULL,
    sequence INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    holder TEXT,
    until_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, reader_group, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
    topic INTEGER NOT NULL,
    reader_group TEXT NOT NULL,
    member TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (topic, reader_group, member)
) STRICT, WITHOUT ROWID;
