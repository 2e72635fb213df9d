"""Progress for a person: one line per step, with its time.

On a terminal the line is live; elsewhere (CI, a pipe) each step prints plain
lines. What a tool prints goes to a log file; if the tool fails, the end of that
file is shown with its name.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from paths import LOGS, ROOT

TAIL_LINES = 40


class Problem(Exception):
    """Something the reader can put right; the text says how."""


class Step:
    def __init__(self, title, log_name):
        self.title = title
        self.detail = ""
        self.remedy = ""
        self.log = LOGS / log_name if log_name else None
        self.started = time.monotonic()

    def elapsed(self):
        seconds = time.monotonic() - self.started
        return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60):02d} s"

    def run(self, command, env=None, watch=None):
        """Run a tool into the log. `watch` turns a line into the live detail, or None."""
        command = [str(part) for part in command]
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                start_new_session=True,
            )
            try:
                for line in process.stdout:
                    log.write(line)
                    log.flush()
                    self.detail = (watch and watch(line)) or self.detail
            except BaseException:
                # The tool and what it has started: an interrupted build must not go on in the background.
                os.killpg(process.pid, signal.SIGTERM)
                raise
            finally:
                code = process.wait()
        if code != 0:
            raise Problem(f"{command[0].rsplit('/', 1)[-1]} ended with code {code}.")

    def tail(self):
        if not self.log or not self.log.exists():
            return ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"The end of {self.log.relative_to(ROOT)}:"] + [f"  | {line}" for line in lines])


def _show(step, mark, end):
    line = f"{mark}{step.title}{' - ' + step.detail if step.detail else ''}  {step.elapsed()}"
    width = shutil.get_terminal_size().columns - 1
    sys.stdout.write(f"\r\033[K{line[:width]}{end}")
    sys.stdout.flush()


@contextmanager
def step(title, log_name=None):
    """One named step. `log_name` is its file in .local/logs, started afresh."""
    LOGS.mkdir(parents=True, exist_ok=True)
    current = Step(title, log_name)
    if current.log:
        current.log.write_text("", encoding="utf-8")
    live = sys.stdout.isatty()
    finished = threading.Event()

    def tick():
        while not finished.wait(0.2):
            _show(current, "  ... ", "")

    ticker = threading.Thread(target=tick, daemon=True)
    if live:
        ticker.start()
    else:
        print(f"  ... {title}", flush=True)
    mark = "FAILED "
    try:
        yield current
        mark = "   ok "
    except Problem as problem:
        parts = [f"{title}: {problem}", current.tail(), current.remedy]
        raise Problem("\n".join(filter(None, parts))) from None
    finally:
        finished.set()
        if live:
            ticker.join()
            current.detail = ""
            _show(current, mark, "\n")
        else:
            print(f"{mark}{title} ({current.elapsed()})", flush=True)
