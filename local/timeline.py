"""What happens to each webhook, for a person: a line per event, and a picture.

On a terminal the picture is live, below the lines. Elsewhere there are only plain
lines, and the picture once at the end.
"""

import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

MARKS = {
    "accepted": ("✔", "bold green"),
    "unknown": ("?", "bold magenta"),
    "failed": ("✗", "red"),
    "dead": ("■", "bold red"),
    "release": ("↻", "bold cyan"),
    "flight": ("━", "yellow"),
    "wait": ("·", "dim"),
}
LEGEND = [
    ("accepted", "accepted"), ("failed", "failed"), ("unknown", "no answer"), ("dead", "dead"),
    ("release", "redrive"), ("wait", "wait"), ("flight", "in flight"),
]
FINAL = ("delivered", "dead_lettered", "cancelled")
SHORTEST_AXIS_SECONDS = 30
PLAIN_WIDTH = 100


def seconds(number):
    return f"{number:.1f} s"


class Row:
    """One webhook, as `explain` last told it."""

    def __init__(self, name):
        self.name = name
        self.version = None
        self.delivery = None
        self.history = []

    @property
    def state(self):
        return self.delivery["state"] if self.delivery else None

    @property
    def ended(self):
        return self.state in FINAL

    def update(self, version, answer):
        """Takes a new answer of `explain`, and returns the entries that it adds to the history."""
        seen = len(self.history)
        self.version, self.delivery, self.history = version, answer["delivery"], answer["history"]
        return self.history[seen:]

    def describe(self, entry):
        """One entry of the history as (time in epoch ms, text, style)."""
        if "released_at" in entry:
            text = f"brought back by the plan, as generation {entry['generation']}"
            return entry["released_at"], text, MARKS["release"][1]
        ended = entry["started"] + entry["duration_ms"]
        text = f"attempt {entry['number']}: {self._outcome(entry, ended)}"
        decision = entry["decision"]
        if decision == "waiting":
            due = self.delivery["due"]
            latest = self.state == "waiting" and entry["number"] == self.delivery["attempt"]
            text += f"; retry in {seconds((due - ended) / 1000)}" if latest and due else "; will be retried"
        elif decision == "dead_lettered":
            text += f"; dead letter ({entry['reason']})"
        else:
            text += f"; {decision}"
        return ended, text, _mark_of(entry)[1]

    @staticmethod
    def _outcome(entry, ended):
        """What the receiver answered, and what it asked for."""
        if entry["class"] == "unknown":
            return f"no answer in {seconds(entry['duration_ms'] / 1000)}, may have it"
        text = str(entry["status"] or entry["detail"])
        if entry["hint"]:
            text += f", asks to wait {seconds((entry['hint'] - ended) / 1000)}"
        return text

    def now(self, clock):
        """Where it stands, in a few words and a style."""
        if not self.delivery:
            return "on the queue", "dim"
        if self.state == "delivered":
            tries = self.delivery["attempt"]
            return "delivered, " + ("1 attempt" if tries == 1 else f"{tries} attempts"), "green"
        if self.state == "dead_lettered":
            return f"dead: {self.delivery['reason']}", "bold red"
        if self.state == "in_flight":
            return f"attempt {self.delivery['attempt']} in flight", "yellow"
        if self.state == "waiting":
            left = max(0, self.delivery["due"] / 1000 - clock)
            when = f"in {seconds(left)}" if left else "is due"
            return f"attempt {self.delivery['attempt'] + 1} {when}", ""
        return f"{self.state}: {self.delivery['reason']}", "yellow"

    def draw(self, started, clock, cell_seconds, width):
        """The row on the time axis."""
        cells = [(" ", "")] * width

        def cell(at):
            return min(width - 1, max(0, int((at / 1000 - started) / cell_seconds)))

        def fill(begin, end, mark):
            for i in range(begin, end):
                cells[i] = mark

        taken = -1  # the last cell with a mark; two events never share one
        for entry in self.history:
            if "released_at" in entry:
                at, marks = cell(entry["released_at"]), [MARKS["release"]]
            else:
                begin = max(taken + 1, cell(entry["started"]))
                at, marks = cell(entry["started"] + entry["duration_ms"]), [_mark_of(entry)]
                if taken >= 0:
                    fill(taken + 1, begin, MARKS["wait"])
                fill(begin, at, MARKS["flight"])
                if entry["decision"] == "dead_lettered":
                    marks.append(MARKS["dead"])
            at = min(max(at, taken + 1), width - len(marks))
            for offset, mark in enumerate(marks):
                cells[at + offset] = mark
            taken = at + len(marks) - 1
        if self.state in ("waiting", "in_flight"):
            fill(taken + 1, cell(clock * 1000), MARKS["wait" if self.state == "waiting" else "flight"])
        return Text.assemble(*cells, no_wrap=True)


def _mark_of(entry):
    return MARKS.get(entry["class"], MARKS["failed"])


class Screen:
    """Where the story is told."""

    def __init__(self):
        self.terminal = sys.stdout.isatty()
        sys.stdout.reconfigure(errors="replace")
        self.console = Console(
            force_terminal=self.terminal, highlight=False, emoji=False, markup=False,
            no_color=None if self.terminal else True,
            width=None if self.terminal else PLAIN_WIDTH,
        )
        self.lively = self.terminal and not self.console.is_dumb_terminal
        self.rows = []
        self.names = 0
        self.started = None
        self.doing = ""
        self._live = None

    def say(self, text="", style=""):
        self.console.print(Text(text, style), soft_wrap=True)

    def title(self, text):
        self.say()
        self.say(text, "bold")

    def table(self, table):
        self.console.print(table)

    def begin(self, rows):
        """The clock of the story starts."""
        self.rows, self.started = rows, time.time()
        self.names = max(len(row.name) for row in rows)
        if self.lively:
            self._live = Live(console=self.console, get_renderable=self._picture, refresh_per_second=8)
            self._live.start()

    def elapsed(self):
        return time.time() - self.started

    def event(self, at_ms, name, text, style=""):
        at = max(0.0, at_ms / 1000 - self.started)
        line = Text.assemble((f"{at:6.1f} s  ", "dim"), (f"{name:{self.names}}  ", "bold"), (text, style))
        self.console.print(line, soft_wrap=True)

    def end(self):
        """The picture stays as it is now."""
        self.doing = ""
        if self._live:
            self._live.stop()
            self._live = None
        elif self.started:
            self.console.print(self._picture())

    def close(self):
        """Leaves the terminal in order, whatever happened."""
        if self._live:
            self._live.stop()
            self._live = None

    def _picture(self):
        clock = time.time()
        states = [row.now(clock) for row in self.rows]
        right = max(24, *(len(text) for text, _ in states))
        width = max(20, self.console.width - self.names - right - 4)
        cell_seconds = max(SHORTEST_AXIS_SECONDS, clock - self.started + 1) / width
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_row("", self._axis(width, cell_seconds), "")
        for row, (text, style) in zip(self.rows, states):
            grid.add_row(row.name, row.draw(self.started, clock, cell_seconds, width), Text(text, style))
        legend = Text(" " * (self.names + 2), no_wrap=True)
        for mark, words in LEGEND:
            legend.append(*MARKS[mark])
            legend.append(f" {words} ", "dim")
        parts = [Text(), grid, legend]
        if self.doing:
            parts.append(Spinner("dots", Text(f"{int(clock - self.started)} s  {self.doing}"), style="cyan"))
        return Group(*parts)

    def _axis(self, width, cell_seconds):
        text = ""  # a label each 5 seconds
        for second in range(0, 3600, 5):
            label, at = f"{second} s", int(second / cell_seconds)
            if at + len(label) > width:
                break
            text += " " * (at - len(text)) + label
        return Text(text, "dim", no_wrap=True)
