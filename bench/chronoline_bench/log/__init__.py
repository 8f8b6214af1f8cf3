"""The bench `log`: the log in a folder, beside the published algorithm `reference` on the same disk."""
