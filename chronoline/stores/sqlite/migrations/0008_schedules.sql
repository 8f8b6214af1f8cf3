-- Recurring schedules; see chronoline/stores/schedules.py. rule: when it fires, as JSON.
CREATE TABLE schedules (
    name TEXT NOT NULL PRIMARY KEY,
    uid INTEGER NOT NULL,
    topic INTEGER NOT NULL,
    version INTEGER NOT NULL,
    next_ms INTEGER,
    paused INTEGER NOT NULL,
    producer_group TEXT NOT NULL,
    rule TEXT NOT NULL,
    key BLOB,
    headers BLOB,
    body BLOB
) STRICT;
CREATE INDEX schedules_next ON schedules (next_ms, name) WHERE paused = 0;
CREATE INDEX schedules_topic ON schedules (topic);
