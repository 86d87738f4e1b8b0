"""What tests share: samples, tables, servers, faults and a clock."""

from typing import Final

# How long a test waits for something that certainly happens. Long, because the machine may be busy with other work.
PATIENCE_SECONDS: Final = 600
