"""Writes a report each second, as the command of lictor agent. The database refuses what is written in a term that is over.

    lictor agent --lease shop/report -- python3 worker.py DATABASE      DATABASE is a file of SQLite

lictor ends this program before another one can begin. But what it has sent may still be on its way then: so each write says in which term it
was made (LICTOR_TERM, the fencing token), and the database looks.
"""

import os
import sqlite3
import sys
import time
from pathlib import Path

term = int(os.environ["LICTOR_TERM"])
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.executescript(Path(__file__).with_name("schema.sql").read_text())
while True:
    connection.execute("BEGIN IMMEDIATE")  # one transaction: all that is written in it, or nothing
    # First: it locks the row until the transaction ends, so no later term can begin to write in between.
    row = connection.execute("UPDATE leadership SET term = ?1 WHERE election = 'report' AND term <= ?1", [term])
    if row.rowcount != 1:
        connection.execute("ROLLBACK")
        sys.exit(f"refused: term {term} is over")
    connection.execute("INSERT INTO reports (term) VALUES (?)", [term])
    connection.execute("COMMIT")
    print(f"a report in term {term}", flush=True)
    time.sleep(float(os.environ.get("REPORT_SECONDS", "1")))
