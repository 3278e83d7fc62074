"""For all tests."""

import os

# Before torch is loaded, and for the processes that tests start: on tensors as small as here a second thread costs more
# than it gives, most of all on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
