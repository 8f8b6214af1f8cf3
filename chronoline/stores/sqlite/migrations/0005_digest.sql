-- A digest of what a producer wrote, which marks keep; see "Repeated creates" in docs/design/core.md.
ALTER TABLE messages ADD COLUMN digest BLOB;
