"""The history of observations on Spark.

The package depends on `edge` only for the formats of observations and segments, and for helpers of its benchmarks.
"""

__all__ = ["History"]


def __getattr__(name: str) -> object:
    """Import `History` on first access: importing PySpark takes seconds, and some commands do without."""
    if name == "History":
        from spark_offload.history import History

        return History
    raise AttributeError(name)
