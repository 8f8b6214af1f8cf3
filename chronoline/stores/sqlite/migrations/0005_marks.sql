-- A digest of what a producer wrote, which marks keep; see "Repeated creates" in docs/design/core.md.
ALTER TABLE messages ADD COLUMN digest BLOB;
-- In a mark: the partition of a cancel that waits for its create; see "Early cancels" in docs/design/pipe.md.
ALTER TABLE messages ADD COLUMN early_cancel TEXT;
ALTER TABLE inputs ADD COLUMN withdrawn INTEGER NOT NULL DEFAULT 0;
