"""How the public API may be used, as mypy must see it.

Never run: `make check` type-checks it. A line that must be refused carries a `type: ignore` with
the code of the error; when it is no longer refused, mypy reports the comment as unused.
"""

from __future__ import annotations

from typing_extensions import assert_type

import weft
from weft.errors import NoSuchProcess, TargetError, WeftError

assert_type(weft.__version__, str)

error: WeftError = NoSuchProcess("no process has id 7", advice="see weft ps")
target_error: type[TargetError] = NoSuchProcess
assert_type(error.what, str)
assert_type(error.exit_code, int)

NoSuchProcess()  # type: ignore[call-arg]
NoSuchProcess(7)  # type: ignore[arg-type]
print(weft.no_such_name)  # type: ignore[attr-defined]
