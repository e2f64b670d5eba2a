"""The journal: the SQLite file that makes commits durable, and the data directory that holds it."""
