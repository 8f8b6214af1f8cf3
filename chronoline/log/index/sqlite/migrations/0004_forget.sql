-- Names before a floor are refused unless they are known, so rows of objects that are gone can be deleted. The
-- prefix '' stands for all objects, and that of a source for its keyed appends.
CREATE TABLE floors (
    prefix TEXT PRIMARY KEY,
    topic INTEGER,
    floor TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO floors (prefix, floor) VALUES ('', '');
CREATE INDEX floors_topic ON floors (topic);
CREATE INDEX objects_gone ON objects (name) WHERE refs < 0;

-- Topics that were deleted, until nothing of them is left.
CREATE TABLE deleted_topics (
    uid INTEGER PRIMARY KEY
) STRICT;

-- uid: tells a group from a later one of its name.
CREATE TABLE reader_groups (
    topic INTEGER NOT NULL,
    reader_group TEXT NOT NULL,
    uid INTEGER NOT NULL,
    PRIMARY KEY (topic, reader_group)
) STRICT, WITHOUT ROWID;
