"""An engine that hangs: an update waits as long as the file named by `HANGING` exists.

Python imports this module at its start if its directory is on `PYTHONPATH`.
"""

import os
import time
from pathlib import Path

from edge.engine.engine import Engine

_execute = Engine.execute


def _hang(*arguments, **more):
    while Path(os.environ["HANGING"]).exists():
        time.sleep(0.01)
    return _execute(*arguments, **more)


Engine.execute = _hang
