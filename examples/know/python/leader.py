"""Says when this pod begins to lead, and when it stops.

    python3 leader.py [DIRECTORY]      DIRECTORY is where the downwardAPI volume is mounted; default: /etc/podinfo
"""

import signal
import sys
import time
from pathlib import Path


def leading_term(directory):
    """Returns the term if this pod leads, else None."""
    for _ in range(3):
        try:
            # Kubelet never writes to a file that can be seen. It writes both files to a new directory, lets the link ..data point
            # to it, and deletes the old directory. So follow the link once, and read both files there: they belong together.
            version = Path(directory, "..data").resolve(strict=True)
            role, term = (version / "role").read_text(), (version / "term").read_text()
            return int(term) if role == "leader" else None
        except (OSError, ValueError):
            pass  # Kubelet has just deleted that directory, and there is a newer one; or there are no such files.
    return None


def changed(term):
    """Put your program here: begin with this term, or stop at once if it is None."""
    print("not leading" if term is None else f"leading in term {term}", flush=True)


stopping = False


def stop(*_):
    global stopping
    stopping = True


# Kubelet does not change the files of a pod that is being deleted: SIGTERM is how it learns that it leads no longer.
signal.signal(signal.SIGTERM, stop)
before = "unknown"
while not stopping:
    term = leading_term(sys.argv[1] if len(sys.argv) > 1 else "/etc/podinfo")
    if term != before:
        changed(term)
    before = term
    time.sleep(0.1)
changed(None)
