-- The log whose objects this index speaks of: one row.
CREATE TABLE log (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    id TEXT NOT NULL
) STRICT;
DROP INDEX objects_swept;
