-- Which session was granted the last lease; see chronoline/core/session.py.
ALTER TABLE chronoline.messages ADD COLUMN lock_session text COLLATE "C";
