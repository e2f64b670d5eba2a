"""The processor of RDF streams: streams, windows, and continuous queries on an engine of its own.

Each module has one part of its state. From the bottom up: the registered streams and queries, the changes that are not
stored yet, the elements that come, the windows of queries, time, registration; `processor` puts them together.
"""

from edge.streams.processor.advance_in_progress import AdvanceInProgress
from edge.streams.processor.element_limits import NewElement
from edge.streams.processor.elements import Accepted
from edge.streams.processor.processor import Processor

__all__ = ["Accepted", "AdvanceInProgress", "NewElement", "Processor"]
