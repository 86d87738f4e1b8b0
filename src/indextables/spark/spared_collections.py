"""Spark's Python processes collect garbage after every task, and the next one waits for them.

Most of what they look through is modules and classes, which stay. Once it is set aside, a collection takes next to no
time.
"""

import functools
import gc


@functools.cache
def spare_collections() -> None:
    """Set aside what this process has loaded so far. A second time changes nothing."""
    gc.freeze()
