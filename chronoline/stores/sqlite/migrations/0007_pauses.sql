-- A topic's revision grows with each change of its settings or pause; see "Changed topics" in docs/design/stores.md.
ALTER TABLE topics ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;
ALTER TABLE topics ADD COLUMN paused_at INTEGER;
ALTER TABLE topics ADD COLUMN paused_by TEXT;
ALTER TABLE topics ADD COLUMN pause_reason TEXT;
