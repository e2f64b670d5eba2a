"""SUB Engine: a live RDF graph, exact change sets, and notifications of changes for subscriptions."""

from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine

__all__ = ["EngineSettings", "Scheduler", "open_engine"]
