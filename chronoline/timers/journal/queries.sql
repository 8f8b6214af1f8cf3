-- name: begin_life
-- Names the life of a new journal; one that has a name keeps it.
INSERT INTO journal (only_row, life) VALUES (1, :life) ON CONFLICT DO NOTHING;

-- name: life
-- The life of the journal.
SELECT life FROM journal;

-- name: see_boot
-- Numbers a boot of the machine.
INSERT INTO boots (boot) VALUES (:boot) ON CONFLICT DO NOTHING;

-- name: boot_number
-- The number of a boot.
SELECT number FROM boots WHERE boot = :boot;

-- name: save
-- Keeps a record in place of the one before.
INSERT INTO timers (id, start_ms, wall_start_ms, boot, record, confirmed)
VALUES (:id, :start_ms, :wall_start_ms, :boot, :record, :confirmed)
ON CONFLICT (id) DO UPDATE SET
    start_ms = excluded.start_ms, wall_start_ms = excluded.wall_start_ms, boot = excluded.boot,
    record = excluded.record, confirmed = excluded.confirmed;

-- name: forget
-- Removes a record.
DELETE FROM timers WHERE id = :id;

-- name: records
-- All records, in any order; as bytes, since one that is no text must not keep the others from being read.
SELECT id, CAST(record AS BLOB) FROM timers;

-- name: page
-- Records in order of their ids, from one on; as bytes, since one that is no text must not keep the others
-- from being read.
SELECT id, start_ms, wall_start_ms, boot, CAST(record AS BLOB), CAST(confirmed AS BLOB) FROM timers
WHERE id >= :first ORDER BY id LIMIT :limit;
