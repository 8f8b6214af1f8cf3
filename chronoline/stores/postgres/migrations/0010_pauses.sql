-- A topic's revision grows with each change of its settings or pause; see "Changed topics" in docs/design/stores.md.
ALTER TABLE chronoline.topics ADD COLUMN revision bigint NOT NULL DEFAULT 1;
ALTER TABLE chronoline.topics ADD COLUMN paused_at bigint;
ALTER TABLE chronoline.topics ADD COLUMN paused_by text COLLATE "C";
ALTER TABLE chronoline.topics ADD COLUMN pause_reason text COLLATE "C";
