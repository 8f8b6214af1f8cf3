-- The accounts of inputs; see chronoline/stores/inputs.py.
CREATE TABLE inputs (
    source TEXT NOT NULL,
    partition INTEGER NOT NULL,
    position INTEGER NOT NULL,
    fence INTEGER NOT NULL DEFAULT 1,
    until_ms INTEGER NOT NULL,
    holder TEXT,
    accepted INTEGER NOT NULL DEFAULT 0,
    ignored INTEGER NOT NULL DEFAULT 0,
    rejected INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    rescheduled INTEGER NOT NULL DEFAULT 0,
    missed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (source, partition)
) STRICT, WITHOUT ROWID;

-- Who shares a piece of work; see chronoline/stores/members.py.
CREATE TABLE members (
    "group" TEXT NOT NULL,
    name TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    stopping INTEGER NOT NULL DEFAULT 0,
    details TEXT NOT NULL,
    PRIMARY KEY ("group", name)
) STRICT, WITHOUT ROWID;
