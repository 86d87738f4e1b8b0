"""What tests share: samples, tables, servers, faults and a clock."""

from typing import Final

# How long a test waits for something that certainly happens. Long, because the machine may be busy with other work.
PATIENCE_SECONDS: Final = 600

# Spark gives each Python process of a streaming query ten seconds to connect, which no setting changes. A query that a
# busy machine kept from connecting fails with this message, and is started again, at most this often.
STREAM_TOO_SLOW: Final = "Python worker failed to connect back"
MAX_STREAM_STARTS: Final = 10
