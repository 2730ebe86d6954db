"""A worker in plain Python that has neither the database nor holdfast: HTTP is all it needs.

    HOLDFAST_API=http://127.0.0.1:8000 HOLDFAST_API_KEY=… python http_worker.py

It claims one task at a time, renews its lease in a thread while it works, and settles it. Kill it:
when the lease has lapsed, another one takes over.
"""

import json
import os
import threading
import urllib.error
import urllib.request
import uuid

API = os.environ.get("HOLDFAST_API", "http://127.0.0.1:8000")
LEASE = float(os.environ.get("LEASE", "30"))  # seconds


def ask(path, **body):
    """None: the lease is lost."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("HOLDFAST_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(API + path, json.dumps(body).encode(), headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        if error.code == 409:
            return None
        raise RuntimeError(error.read().decode()) from None


def count_words(text):
    return len(text.split())


FUNCTIONS = {"count_words": count_words}


def work(task):
    over = threading.Event()

    def renew():
        while not over.wait(LEASE / 3) and ask(f"/v1/leases/{task['lease']}:renew") is not None:
            pass

    threading.Thread(target=renew, daemon=True).start()
    try:
        result = FUNCTIONS[task["type"]](*task["payload"]["args"], **task["payload"]["kwargs"])
        end = {"outcome": "done", "result": result}
    except Exception as error:
        error = {"type": type(error).__name__, "message": str(error)}
        end = {"outcome": "failed", "error": error}
    over.set()
    settled = ask(f"/v1/leases/{task['lease']}:settle", **end)
    print(task["task_id"], settled["ended"] if settled else "was lost", flush=True)


def main():
    me = ask("/v1/workers", worker_id=f"http-{os.getpid()}", types=list(FUNCTIONS))["worker"]
    print("ready", flush=True)
    drain = False
    while not drain:
        claim = {"worker": me, "request_id": str(uuid.uuid4()), "lease_seconds": LEASE, "wait": 10}
        found = ask("/v1/claims", **claim)
        drain = found["drain"]
        for task in found["data"]:
            work(task)
    ask("/v1/workers:sign-off", worker=me)


if __name__ == "__main__":
    main()
