-- Recurring schedules; see chronoline/stores/schedules.py. rule: when it fires, as JSON.
CREATE TABLE chronoline.schedules (
    name text COLLATE "C" PRIMARY KEY,
    uid bigint NOT NULL,
    topic bigint NOT NULL,
    version bigint NOT NULL,
    next_ms bigint,
    paused boolean NOT NULL,
    producer_group text COLLATE "C" NOT NULL,
    rule text NOT NULL,
    key bytea,
    headers bytea,
    body bytea
) WITH (
    -- Every occurrence rewrites its row, and the head of the index must stay free of dead ones.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE chronoline.schedules ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX schedules_next ON chronoline.schedules (next_ms, name) WHERE NOT paused;
CREATE INDEX schedules_topic ON chronoline.schedules ((topic + 0));
