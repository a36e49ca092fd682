"""Programs that run from a clone of their code, started or taken over with every option."""

from weft.control.clone import CloneStats, Records, Tracing
from weft.session import Cloned

__all__ = ["CloneStats", "Cloned", "Records", "Tracing", "attach", "launch"]

launch = Cloned.launch
attach = Cloned.attach
