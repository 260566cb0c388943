"""A program on Microsoft's pattern (BlobDistributedMutex): acquires the lease of a blob, runs while it renews it, and releases it.

CONTAINER BLOB once | wait: acquires it once, or until it succeeds; says `leased`, or why not; holds it until the standard input ends
CONTAINER BLOB upload | read | break: writes the blob, says what is in it, breaks its lease
"""

import os
import sys
import threading
import time

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobLeaseClient

DURATION = 15

account = os.environ["AZURE_STORAGE_ACCOUNT_NAME"]
blob = BlobClient(
    os.environ["AZURE_STORAGE_ENDPOINT"],
    container_name=sys.argv[1],
    blob_name=sys.argv[2],
    credential={"account_name": account, "account_key": os.environ["AZURE_STORAGE_ACCOUNT_KEY"]},
    retry_total=0,
)
if sys.argv[3] == "break":
    print(BlobLeaseClient(blob).break_lease(), flush=True)
    sys.exit()
if sys.argv[3] == "upload":
    blob.upload_blob(b"of the program", metadata={"owner": "us"})
    sys.exit()
if sys.argv[3] == "read":
    found = blob.download_blob()
    print(found.readall().decode(), found.properties.metadata.get("owner"), flush=True)
    sys.exit()
lease = BlobLeaseClient(blob)
while True:
    try:
        lease.acquire(lease_duration=DURATION)
        break
    except HttpResponseError as error:
        if error.status_code != 409 or sys.argv[3] != "wait":
            print(error.status_code, getattr(error.error_code, "value", error.error_code), flush=True)
            sys.exit(1)
    time.sleep(0.05)
print("leased", flush=True)
stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
while not stopped.wait(DURATION / 3):
    lease.renew()
lease.release()
