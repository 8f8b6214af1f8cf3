-- Dropped topics, for the purge: those that wait to be emptied, and by when they were.
CREATE INDEX topics_dropped ON chronoline.topics (emptied_at) WHERE dropped_at IS NOT NULL;
