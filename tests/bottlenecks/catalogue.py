"""All programs and servers, with what is planted in each."""

from __future__ import annotations

from tests.bottlenecks.healthy import HEALTHY
from tests.bottlenecks.model import Case
from tests.bottlenecks.one import ONE
from tests.bottlenecks.servers import SERVERS
from tests.bottlenecks.two import TWO

CASES: tuple[Case, ...] = (*ONE, *TWO, *HEALTHY, *SERVERS)
