-- given: the first sequences that its commit was answered, in the order of its chunks, as a JSON array. A
-- commit that is asked for again is answered the same, whatever has become of its chunks.
ALTER TABLE objects ADD COLUMN given TEXT NOT NULL DEFAULT '[]';
DROP INDEX chunks_object;

-- told: readers were started for everything before it. told_since_ms: when whoever tells began to wait; 0: nobody.
ALTER TABLE heads ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
ALTER TABLE heads ADD COLUMN told_since_ms INTEGER NOT NULL DEFAULT 0;
