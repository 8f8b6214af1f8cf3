"""The engines as a bench sees them: the store on a database, and the raw database beside it."""
