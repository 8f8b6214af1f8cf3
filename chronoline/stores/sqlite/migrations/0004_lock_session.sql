-- Which session was granted the last lease; see chronoline/core/session.py.
ALTER TABLE messages ADD COLUMN lock_session TEXT;
