"""The SUB Engine: a live RDF graph, exact change sets, and subscriptions that are told what changed."""

from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine

__all__ = ["EngineSettings", "Scheduler", "open_engine"]
