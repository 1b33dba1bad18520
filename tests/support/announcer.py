"""A small program that behaves as a service does: ``python announcer.py <name> [fail|child|http|again|talk]``.

It announces itself, writes ``stopped <name>`` to ``<data_dir>/order`` on SIGTERM, and ends. With ``fail`` it says why
and ends before it announced itself; with ``child`` it starts a process that it leaves behind; with ``http`` it has a
port, at which it answers 404; with ``again`` it asks to be started again, three times, as soon as it is ready; with
``talk`` it writes numbers to its output, from 0 on.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from lightstream.runtime.processes import RESTART_STATUS
from lightstream.runtime.services import Service, announce, withdraw
from lightstream.runtime.settings import Settings


def main() -> None:
    name = sys.argv[1]
    if sys.argv[2:] == ["fail"]:
        sys.exit("the reason is written here")
    if sys.argv[2:] == ["child"]:
        subprocess.Popen(["sleep", "600"])
    settings = Settings.load()
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: asked_to_stop.set())
    address = ""
    if sys.argv[2:] == ["http"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
    announce(settings, Service(name, address, os.getpid(), time.time_ns()))
    if sys.argv[2:] == ["again"]:
        starts = settings.data_dir / "starts"
        with starts.open("a", encoding="utf-8") as file:
            file.write("started\n")
        if len(starts.read_text("utf-8").split()) <= 3:
            sys.exit(RESTART_STATUS)
    for number in itertools.count() if sys.argv[2:] == ["talk"] else ():
        print(number, flush=True)
        if asked_to_stop.wait(0.001):
            break
    asked_to_stop.wait()
    with (settings.data_dir / "order").open("a", encoding="utf-8") as file:
        file.write(f"stopped {name}\n")
    withdraw(settings, name, os.getpid())


if __name__ == "__main__":
    main()
