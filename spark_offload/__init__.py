"""The history of observations on Spark. Knows nothing of `edge` but the schema of a segment."""
