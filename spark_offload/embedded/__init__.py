"""DuckDB as an engine for the plans that the SPARQL translation makes, in this process and without Java."""
