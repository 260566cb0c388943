"""Pays an invoice as the leader of a term. The database refuses it if a later term has written already.

    python3 pay.py DATABASE TERM INVOICE      DATABASE is a file of SQLite
"""

import sqlite3
import sys
from pathlib import Path

database, term, invoice = sys.argv[1], int(sys.argv[2]), sys.argv[3]
connection = sqlite3.connect(database)
connection.executescript(Path(__file__).with_name("schema.sql").read_text())
with connection:  # one transaction: all that is written in it, or nothing
    # First: it locks the row until the transaction ends, so no later term can begin to write in between.
    row = connection.execute("UPDATE leadership SET term = ?1 WHERE election = 'know' AND term <= ?1", [term])
    if row.rowcount != 1:
        sys.exit(f"refused: term {term} is over")
    connection.execute("INSERT INTO payments VALUES (?, ?)", [invoice, term])
print(f"paid {invoice} in term {term}")
