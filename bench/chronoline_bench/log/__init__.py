"""The bench `log`: the log in a folder, beside a log with one object per event on the same disk."""
