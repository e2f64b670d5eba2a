"""An engine that hangs: an update is not carried out as long as the file exists that `HANGING` names.

Python imports this module when it starts, where its directory is on `PYTHONPATH`.
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
