-- New messages of a topic begin above its floor, and only rows up to it are removed; see docs/design/core.md.
ALTER TABLE topics ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;
