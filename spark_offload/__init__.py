"""The history of observations on Spark. Knows nothing of `edge` but what an observation and a segment are."""

__all__ = ["History"]


def __getattr__(name: str) -> object:
    """`from spark_offload import History`, with PySpark imported only then."""
    if name == "History":
        from spark_offload.history import History

        return History
    raise AttributeError(name)
