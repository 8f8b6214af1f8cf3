CREATE TABLE chronoline_log.topics (
    uid bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    partitions integer NOT NULL
);

-- told: readers were started for everything before it. told_since_ms: when whoever tells began to wait; 0: nobody.
CREATE TABLE chronoline_log.heads (
    topic bigint NOT NULL,
    first_sequence bigint NOT NULL DEFAULT 0,
    next_sequence bigint NOT NULL DEFAULT 0,
    appended_ms bigint NOT NULL DEFAULT 0,
    told bigint NOT NULL DEFAULT 0,
    told_since_ms bigint NOT NULL DEFAULT 0,
    partition integer NOT NULL,
    PRIMARY KEY (topic, partition)
) WITH (
    -- Every commit changes some of these few rows: with room beside them, no index entry is written anew.
    fillfactor = 30,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- refs: in how many chunks it lies; -1 an orphan that was swept, or one that was collected: it can never be
-- committed. given: the first sequences that its commit was answered, in the order of its chunks. A commit that
-- is asked for again is answered the same, whatever has become of its chunks.
CREATE TABLE chronoline_log.objects (
    name text COLLATE "C" PRIMARY KEY,
    swept_ms bigint,
    refs integer NOT NULL,
    given bigint[] NOT NULL DEFAULT '{}'
);
CREATE INDEX objects_unreferenced ON chronoline_log.objects (name) WHERE refs = 0;

CREATE TABLE chronoline_log.chunks (
    topic bigint NOT NULL,
    first_sequence bigint NOT NULL,
    appended_ms bigint NOT NULL,
    start bigint NOT NULL,
    length bigint NOT NULL,
    count bigint NOT NULL,
    partition integer NOT NULL,
    object text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, partition, first_sequence)
);
CREATE INDEX chunks_appended
    ON chronoline_log.chunks (topic, partition, appended_ms, first_sequence);

CREATE TABLE chronoline_log.cursors (
    topic bigint NOT NULL,
    sequence bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    until_ms bigint NOT NULL DEFAULT 0,
    partition integer NOT NULL,
    reader_group text COLLATE "C" NOT NULL,
    holder text COLLATE "C",
    PRIMARY KEY (topic, reader_group, partition)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE chronoline_log.members (
    topic bigint NOT NULL,
    until_ms bigint NOT NULL,
    reader_group text COLLATE "C" NOT NULL,
    member text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, reader_group, member)
) WITH (fillfactor = 50);
