"""The cases of the bench `store`, each a function that adds rows to the session."""
