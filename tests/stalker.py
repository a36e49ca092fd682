"""Runs a program with its first thread followed by Frida's Stalker, from `main` on.

    python -m tests.stalker [--events compile|block|none] COMMAND...

With events, it tells of each block that it translates (which is coverage), or of each that is
executed, and that is thrown away.

Ends with 0 when the program has ended by itself, with 1 when it crashed; Frida does not say which
exit code it had. Other threads and children run natively.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import threading
from typing import Any

# The program stands in its initialisers, beyond libc's start: what `_start` gives to it as `main`
# is told by its code, `lea main(%rip), %rdi` or `mov $main, %rdi`.
SCRIPT = """
const base = Process.mainModule.base;
const header = base.add(24).readU64();
const entry = base.add(16).readU16() === 3 ? base.add(header) : ptr(header.toString());
const code = new Uint8Array(entry.readByteArray(64));
let main = null;
for (let at = 0; at < 57 && !main; at++) {
    const number = entry.add(at + 3).readS32();
    if (code[at] === 0x48 && code[at + 1] === 0x8d && code[at + 2] === 0x3d) {
        main = entry.add(at + 7 + number);
    } else if (code[at] === 0x48 && code[at + 1] === 0xc7 && code[at + 2] === 0xc7) {
        main = ptr(number);
    }
}
const hook = Interceptor.attach(main, {
    onEnter() {
        hook.detach();
        Stalker.follow(this.threadId, { events: EVENTS, onReceive(events) {} });
    }
});
Interceptor.flush();
"""


def main() -> None:
    frida = importlib.import_module("frida")
    words = sys.argv[1:]
    events = "none"
    if words[0] == "--events":
        events, words = words[1], words[2:]
    wanted = {} if events == "none" else {events: True}
    command = [shutil.which(words[0]) or words[0], *words[1:]]
    ended, crashes = threading.Event(), list[str]()

    def detached(reason: str, crash: Any) -> None:
        if crash is not None:
            crashes.append(str(crash))
        ended.set()

    device = frida.get_local_device()
    pid = device.spawn(command, stdio="inherit")
    session = device.attach(pid)
    session.on("detached", detached)
    script = session.create_script(f"const EVENTS = {json.dumps(wanted)};{SCRIPT}")
    script.on("message", lambda message, _: crashes.append(str(message)))
    script.load()
    device.resume(pid)
    ended.wait()
    if crashes:
        sys.exit(crashes[0])


if __name__ == "__main__":
    main()
