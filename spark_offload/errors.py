"""Errors of the Spark side. The text of each is one sentence with the problem, the place and the remedy."""

from __future__ import annotations


class HistoryError(Exception):
    """Base class of the errors that `edge-history` reports without a traceback."""


class MissingPart(HistoryError):
    """A dependency is not installed: Java, PySpark, or the Delta jars."""


class TableRefused(HistoryError):
    """The table does not exist, or is not a table of the history."""


class TableBusy(HistoryError):
    """Another process is writing to the table."""


class Overtaken(HistoryError):
    """Another ingester committed first; the round must be repeated on the new version."""


class IngestFailed(HistoryError):
    """Spark could not ingest segments; they stay in the landing zone."""


class LandingRefused(HistoryError):
    """The landing zone cannot be used."""


class QueryRefused(HistoryError):
    """The query is not valid SPARQL, or uses a feature that is not supported; the text names it."""


class BacktestRefused(HistoryError):
    """The query or rule of a backtest cannot be followed, or its context cannot be read."""


class ResultTooLarge(HistoryError):
    """The result of a query has more rows or bytes than allowed."""


class QueryCancelled(HistoryError):
    """The query was cancelled before its end."""


class EngineRefused(QueryRefused):
    """The embedded engine cannot answer a query or read a table that Spark can; the text names the reason."""


class GatewayRefused(HistoryError):
    """A gateway is unknown, does not answer, or rejects the request."""


class SparkEnded(HistoryError):
    """Spark stopped during an operation."""


class ListenRefused(HistoryError):
    """A server cannot listen on the configured address."""


class NotMeasured(HistoryError):
    """A measurement cannot run here, or its result is invalid."""


class OutputRefused(HistoryError):
    """The output cannot be written to the requested place."""
