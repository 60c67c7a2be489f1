"""One torch thread: the tests run beside each other, and threads that wait for a core spin."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; children inherit it
