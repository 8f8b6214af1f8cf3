"""The bench `log`: the log in a folder, beside the published algorithm `safya` on the same disk."""
