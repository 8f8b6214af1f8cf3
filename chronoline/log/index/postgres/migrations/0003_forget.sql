-- Names before a floor are refused unless they are known, so rows of objects that are gone can be deleted. The
-- prefix '' stands for all objects, and that of a source for its keyed appends. reached: the floor that all
-- heads have; names before it can be forgotten.
CREATE TABLE chronoline_log.floors (
    prefix text COLLATE "C" PRIMARY KEY,
    topic bigint,
    floor text COLLATE "C" NOT NULL,
    reached text COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX floors_topic ON chronoline_log.floors (topic);
INSERT INTO chronoline_log.floors (prefix, floor, reached) VALUES ('', '', '');
ALTER TABLE chronoline_log.heads ADD COLUMN floor text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX objects_gone ON chronoline_log.objects (name) WHERE refs < 0;

-- Topics that were deleted, until nothing of them is left.
CREATE TABLE chronoline_log.deleted_topics (
    uid bigint PRIMARY KEY
);

-- uid: tells a group from a later one of its name.
CREATE TABLE chronoline_log.reader_groups (
    topic bigint NOT NULL,
    uid bigint NOT NULL,
    reader_group text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, reader_group)
);
