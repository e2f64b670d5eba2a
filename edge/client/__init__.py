"""The client library: producers, consumers and aggregators, and the low-level client that they are made of."""

from edge.backoff import Backoff
from edge.client.aggregator import Aggregator
from edge.client.answers import Scheduled, Timer, Updated
from edge.client.application import Application
from edge.client.backlog import Notification
from edge.client.brokers import Brokers
from edge.client.client import Client
from edge.client.consumer import Consumer
from edge.client.discovery import local_services
from edge.client.endpoints import Endpoints
from edge.client.errors import BadAnswer, ClientError, Closed, NoAnswer, NoConnection, Refused, Unsupported
from edge.client.observations import Observation, ObservationFeed
from edge.client.options import Options
from edge.client.pipeline import Pipeline, PlainPipeline
from edge.client.producer import Producer
from edge.client.remedies import explain
from edge.client.report_feed import ReportFeed
from edge.client.reports import Report
from edge.client.results import Rows
from edge.client.rows import Row, plain
from edge.client.series import AvailableSeries, Series, SeriesRow
from edge.client.subscription import Subscription
from edge.client.sync_agents import SyncConsumer, SyncProducer
from edge.client.sync_client import SyncClient, SyncObservationFeed, SyncSubscription
from edge.client.sync_reports import SyncReportFeed

__all__ = [
    "Aggregator",
    "Application",
    "AvailableSeries",
    "Backoff",
    "BadAnswer",
    "Brokers",
    "Client",
    "ClientError",
    "Closed",
    "Consumer",
    "Endpoints",
    "NoAnswer",
    "NoConnection",
    "Notification",
    "Observation",
    "ObservationFeed",
    "Options",
    "Pipeline",
    "PlainPipeline",
    "Producer",
    "Refused",
    "Report",
    "ReportFeed",
    "Row",
    "Rows",
    "Scheduled",
    "Series",
    "SeriesRow",
    "Subscription",
    "SyncClient",
    "SyncConsumer",
    "SyncObservationFeed",
    "SyncProducer",
    "SyncReportFeed",
    "SyncSubscription",
    "Timer",
    "Unsupported",
    "Updated",
    "explain",
    "local_services",
    "plain",
]
