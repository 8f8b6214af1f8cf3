CREATE TABLE timers (
    id INTEGER PRIMARY KEY,
    -- By the monotonic clock of a boot, and by the wall clock, in milliseconds.
    start_ms INTEGER NOT NULL,
    wall_start_ms INTEGER NOT NULL,
    boot INTEGER NOT NULL REFERENCES boots (number),
    record TEXT NOT NULL,
    -- Who has the timer too, as JSON: nodes, each with the life of its journal.
    confirmed TEXT NOT NULL
) STRICT;

CREATE TABLE boots (
    number INTEGER PRIMARY KEY,
    boot TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE journal (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Made up with the file: another life has forgotten what this one knew.
    life TEXT NOT NULL
) STRICT;
