"""The engines of a bench: the store on a database, and the raw database beside it."""
