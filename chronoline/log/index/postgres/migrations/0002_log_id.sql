-- The log whose objects this index speaks of: one row.
CREATE TABLE chronoline_log.log (
    only_row integer PRIMARY KEY CHECK (only_row = 1),
    id text NOT NULL
);
