"""The client library: producers, consumers and aggregators, and the low-level client that they are made of."""

from edge.client.answers import Scheduled, Timer, Updated
from edge.client.backlog import Notification
from edge.client.backoff import Backoff
from edge.client.client import Client
from edge.client.endpoints import Endpoints
from edge.client.errors import BadAnswer, ClientError, Closed, NoAnswer, Refused, Unsupported
from edge.client.options import Options
from edge.client.results import Rows
from edge.client.rows import Row, plain
from edge.client.subscription import Subscription

__all__ = [
    "Backoff",
    "BadAnswer",
    "Client",
    "ClientError",
    "Closed",
    "Endpoints",
    "NoAnswer",
    "Notification",
    "Options",
    "Refused",
    "Row",
    "Rows",
    "Scheduled",
    "Subscription",
    "Timer",
    "Unsupported",
    "Updated",
    "plain",
]
