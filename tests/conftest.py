"""Set-up of all tests: two workers share two cores, so each runs single-threaded."""

import os

from hypothesis import settings

# Before numpy is imported: its threads would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("CANNC_THREADS", "1")

settings.register_profile("cannc", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("cannc")
