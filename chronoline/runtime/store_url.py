"""The URLs of stores: their schemes, with an example of each."""

SCHEMES = {
    "memory": "memory:",
    "sqlite": "sqlite:///folder/file.db",
    "postgresql": "postgresql://user:password@host:5432/database",
}
