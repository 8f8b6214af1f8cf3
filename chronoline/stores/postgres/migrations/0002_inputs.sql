-- The accounts of inputs; see chronoline/stores/inputs.py.
CREATE TABLE chronoline.inputs (
    source text COLLATE "C" NOT NULL,
    partition bigint NOT NULL,
    position bigint NOT NULL,
    fence bigint NOT NULL DEFAULT 1,
    until_ms bigint NOT NULL,
    holder text COLLATE "C",
    accepted bigint NOT NULL DEFAULT 0,
    ignored bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    rescheduled bigint NOT NULL DEFAULT 0,
    missed bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (source, partition)
) WITH (fillfactor = 50);  -- its rows change with every batch, in place

-- Who shares a piece of work; see chronoline/stores/members.py.
CREATE TABLE chronoline.members (
    "group" text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    until_ms bigint NOT NULL,
    stopping boolean NOT NULL DEFAULT false,
    details text NOT NULL,
    PRIMARY KEY ("group", name)
) WITH (fillfactor = 50);
