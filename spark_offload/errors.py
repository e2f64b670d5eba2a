"""What can go wrong on the Spark side. Each error is a sentence that says what to do."""

from __future__ import annotations


class HistoryError(Exception):
    """Any of these."""


class MissingPart(HistoryError):
    """Something is not installed: Java, PySpark, the Delta jars."""


class TableRefused(HistoryError):
    """The table is not there, or is no history."""


class TableBusy(HistoryError):
    """Somebody else writes to the table."""


class Overtaken(HistoryError):
    """Another ingester committed first."""


class IngestFailed(HistoryError):
    """Segments could not be taken in; they wait where they are."""


class LandingRefused(HistoryError):
    """The landing zone cannot be used."""


class QueryRefused(HistoryError):
    """The query is no SPARQL, or has something that is not translated; the text names it."""


class GatewayRefused(HistoryError):
    """A gateway is not known, or does not answer."""


class SparkEnded(HistoryError):
    """Spark has stopped in the middle of something."""


class ListenRefused(HistoryError):
    """A server cannot listen where it was told to."""


class NotMeasured(HistoryError):
    """A measurement cannot run here, or what it measured is wrong."""


class OutputRefused(HistoryError):
    """What was asked for cannot be written where it should be."""
