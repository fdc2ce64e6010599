"""What the cases of all Python drivers share: the session's tickets, and how a case is told."""
import asyncio
import inspect
import os
import sys
import traceback

resource = os.environ["RESOURCE"]
tickets = os.environ["TICKETS"].split()
host, port = os.environ["PGHOST"], int(os.environ["PGPORT"])
user, database = os.environ["PGUSER"], os.environ["PGDATABASE"]
big = "0123456789abcdef" * (10 * 1024 * 1024 // 16)


class Holder:
    """The lock's holder: ticket is the newest that was shown; next() is that of a successor."""

    def __init__(self):
        self.at = 0

    @property
    def ticket(self):
        return tickets[self.at]

    def next(self):
        self.at += 1
        return self.ticket


holder = Holder()
all_cases = []


def case(f):
    all_cases.append(f)
    return f


def equal(got, want):
    if got != want:
        raise AssertionError(f"got {got!r:.300}, want {want!r:.300}")


def main(*args):
    failed = False
    for f in all_cases:
        name = f.__name__.strip("_")
        try:
            result = f(*args)
            if inspect.isawaitable(result):
                asyncio.run(asyncio.wait_for(result, 60))
            print("ok", name, flush=True)
        except Exception as e:
            failed = True
            traceback.print_exc()
            print(f"not ok {name}: {type(e).__name__} {' '.join(str(e).split())}", flush=True)
    sys.exit(failed)
