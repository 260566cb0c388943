"""Says when this pod begins to lead, and when it stops: by asking `lictor observe`, or another leader-elector sidecar.

    python3 leader.py [URL [NAME]]      URL: default http://localhost:4040; NAME: this pod's, default the host's name
"""

import json
import signal
import socket
import sys
import time
import urllib.request


def leads(url, name):
    """Returns whether this pod leads. Whoever gets no answer does not lead."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return json.load(answer)["name"] == name
    except (OSError, ValueError, KeyError):
        return False


def changed(leads):
    """Put your program here: begin, or stop at once."""
    print("leading" if leads else "not leading", flush=True)


stopping = False


def stop(*_):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:4040"
name = sys.argv[2] if len(sys.argv) > 2 else socket.gethostname()
before = None
while not stopping:
    now = leads(url, name)
    if now != before:
        changed(now)
    before = now
    time.sleep(1)
changed(False)
