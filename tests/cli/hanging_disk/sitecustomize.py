"""A disk that hangs: a commit of the journal waits as long as the file exists that `HANGING` names.

Python imports this module when it starts, where its directory is on `PYTHONPATH`.
"""

import os
import time
from pathlib import Path

from edge.engine.journal import Journal

_commit = Journal.commit


def _hang(*arguments, **more):
    while Path(os.environ["HANGING"]).exists():
        time.sleep(0.01)
    return _commit(*arguments, **more)


Journal.commit = _hang
