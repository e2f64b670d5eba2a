"""A parser that hangs: a long update waits as long as the file named by `HANGING` exists.

It creates the file named by `PARSING` when it starts. Python imports this module at its start if its directory is on
`PYTHONPATH`.
"""

import os
import time
from pathlib import Path

from edge.engine.engine import Engine

_prepare = Engine.prepare
_LONG = 10_000
"""Characters of a long text."""


def _hang(self, request):
    if len(request.sparql) > _LONG:
        Path(os.environ["PARSING"]).touch()
        while Path(os.environ["HANGING"]).exists():
            time.sleep(0.01)
    return _prepare(self, request)


Engine.prepare = _hang
