"""Line breaks in the last part of a path, such as the name of a stream.

Starlette's own `path` ends before a line break: a path with one in a name has no resource, or another one, because the
line break at the end of a name is lost.
"""

from __future__ import annotations

from starlette.convertors import PathConvertor, register_url_convertor


class _AnyText(PathConvertor):
    regex = "(?s:.*)"


def accept_line_breaks() -> None:
    """Let `{NAME:path}` in routes that are made from now on match each text."""
    register_url_convertor("path", _AnyText())
