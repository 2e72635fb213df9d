#!/usr/bin/env python3
"""The demo, `make run`: six webhooks, six kinds of receivers, and a redrive.

Sends the webhooks to the local stack, shows what happens to each, brings a dead
letter back, and compares all of it with what was expected. The exit status is 0
only if everything held. The stack stays up.
"""

import secrets
import sys
import time
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError
from rich.table import Table

from expectations import Expectations, check
from receiver import SILENCE, Answer, Receivers
from stack import PARAMETERS
from timeline import Row, Screen, seconds
from webhook import NoStack, Refused, Stack

OPERATOR = "demo"
PAUSE_SECONDS = 4  # what the throttling receiver asks for: longer than the first wait
POLL_SECONDS = 0.25
DEADLINE_SECONDS = 90
REDRIVE_DEADLINE_SECONDS = 30
WAITS = [int(wait) for wait in PARAMETERS["RetryScheduleSeconds"].split(",")]
BUDGET = len(WAITS) + 1


@dataclass
class Expected:
    """How a webhook's story must end."""

    classes: list
    statuses: list
    state: str = "delivered"
    reason: str = None
    generation: int = 0


@dataclass
class Webhook:
    name: str
    story: str
    behaviour: object
    expected: Expected
    event: str = ""
    body: bytes = b""
    row: Row = field(default=None, repr=False)

    @property
    def path(self):
        return f"/{self.name}"


WEBHOOKS = [
    Webhook("ok", "answers 200", lambda n: Answer(200), Expected(["accepted"], [200])),
    Webhook("busy", "answers 503 twice, then 200", lambda n: Answer(503 if n <= 2 else 200),
            Expected(["transient", "transient", "accepted"], [503, 503, 200])),
    Webhook("limited", f"answers 429 with Retry-After: {PAUSE_SECONDS}, then 200",
            lambda n: Answer(429, {"retry-after": str(PAUSE_SECONDS)}) if n == 1 else Answer(200),
            Expected(["throttled", "accepted"], [429, 200])),
    Webhook("silent", "takes it but never answers, then 200",
            lambda n: SILENCE if n == 1 else Answer(200), Expected(["unknown", "accepted"], [None, 200])),
    Webhook("refusing", "answers 400: it never wants this one", lambda n: Answer(400),
            Expected(["permanent"], [400], "dead_lettered", "permanent")),
    Webhook("broken", "answers 500 until somebody repairs it", lambda n: Answer(500),
            Expected(["transient"] * BUDGET + ["accepted"], [500] * BUDGET + [200], generation=1)),
]
BY_NAME = {webhook.name: webhook for webhook in WEBHOOKS}


class Late(Exception):
    """Something did not happen in time; what was expected after it is not tried."""


class Demo:
    def __init__(self, screen, stack, receivers, holds):
        self.screen, self.stack, self.receivers, self.holds = screen, stack, receivers, holds
        self.run = secrets.token_hex(3)

    def tell(self):
        self.introduce()
        try:
            self.send()
            self.watch_until_all_ended()
            dead = self.list_dead_letters()
            self.redrive(BY_NAME["broken"], dead)
        except (Late, Refused) as problem:
            self.holds.true("demo", str(problem), False)
        self.screen.end()
        self.compare()

    def introduce(self):
        self.screen.title("Redeliver takes webhooks from a queue and brings them to their receivers.")
        self.screen.say(f"Six webhooks, six receivers, {BUDGET} attempts at most.\n"
                        "The waits between attempts are short here:\n"
                        f"{', '.join(map(str, WAITS))} s, and up to 15 % more.")
        self.screen.say()
        for webhook in WEBHOOKS:
            self.screen.say(f"  {webhook.name:10}{webhook.story}")

    def send(self):
        self.screen.title("Sending all six at once")
        for number, webhook in enumerate(WEBHOOKS, 1):
            webhook.event = f"demo_{webhook.name}_{self.run}"
            # Receivers must get these very bytes: spacing, digits and umlauts survive.
            text = f'{{"order": {1000 + number},  "total": 117.63331139400017, "to": "Zoë", "run": "{self.run}"}}'
            webhook.body = text.encode()
            webhook.row = Row(webhook.name)
        self.screen.begin([webhook.row for webhook in WEBHOOKS])
        for webhook in WEBHOOKS:
            self.stack.send(webhook.event, self.receivers.url(webhook.path), webhook.body.decode())

    def watch_until_all_ended(self):
        self.screen.doing = "retries come at their own times; the broken one uses up its attempts"
        self.watch(WEBHOOKS, lambda row: row.ended, DEADLINE_SECONDS)

    def watch(self, webhooks, done, limit):
        """Shows what changes, until it is done for all of them."""
        deadline = time.monotonic() + limit
        while True:
            for webhook in webhooks:
                self.look(webhook)
            left = [webhook for webhook in webhooks if not done(webhook.row)]
            if not left:
                return
            if time.monotonic() > deadline:
                states = ", ".join(f"{w.name} is {w.row.state or 'not on record'}" for w in left)
                raise Late(f"not done after {limit} s: {states}")
            time.sleep(POLL_SECONDS)

    def look(self, webhook):
        """Asks for the story only when the record has changed."""
        record = self.stack.record(webhook.event)
        row = webhook.row
        if record and record["rev"] != row.version:
            answer = self.stack.ask("explain", id=webhook.event)
            for entry in row.update(record["rev"], answer):
                self.screen.event(*self.line(webhook, entry))

    def line(self, webhook, entry):
        at, text, style = webhook.row.describe(entry)
        return at, webhook.name, text, style

    def list_dead_letters(self):
        self.screen.title("Dead letters: kept until somebody decides")
        ours = {webhook.event: webhook.name for webhook in WEBHOOKS}
        found, others, cursor = [], 0, None
        while True:
            page = self.stack.ask("list", state="dead_lettered", limit=500, cursor=cursor)
            found += [item for item in page["items"] if item["id"] in ours]
            others += sum(1 for item in page["items"] if item["id"] not in ours)
            cursor = page["cursor"]
            if cursor is None:
                break
        for item in found:
            self.screen.say(f"  {item['id']:24} {item['reason']:10} after {item['attempt']} attempt"
                            f"{'' if item['attempt'] == 1 else 's'}")
        if others:
            self.screen.say(f"  and {others} that this run did not send", "dim")
        names = sorted(ours[item["id"]] for item in found)
        self.holds.equal("demo", "dead letters listed", names, ["broken", "refusing"])
        for item in found:
            wanted = ("permanent", 1) if ours[item["id"]] == "refusing" else ("exhausted", BUDGET)
            self.holds.equal(ours[item["id"]], "dead letter", (item["reason"], item["attempt"]), wanted)
        return [item["id"] for item in found]

    def redrive(self, webhook, dead):
        if webhook.event not in dead:
            raise Late(f"{webhook.event} is no dead letter, so it was not redriven")
        self.screen.title("Redrive: repair, propose, approve")
        self.screen.doing = "the redrive"
        self.receivers.repair(webhook.path)
        self.screen.say(f"  The receiver of {webhook.event} is repaired: it answers 200 from now on.")
        self.screen.say("  The refused one stays: the same bytes would be refused again.")
        plan = self.stack.ask("propose", filter={"ids": [webhook.event]}, operator=OPERATOR, note="receiver repaired")
        reasons = ", ".join(f"{count} {reason}" for reason, count in plan["by_reason"].items())
        self.screen.say(f"  Proposed  {plan['plan_id']} ({reasons})")
        for warning in plan["warnings"]:
            self.screen.say(f"            note: {warning}", "yellow")
        self.holds.equal("demo", "deliveries in the plan", plan["count"], 1)
        self.holds.equal("demo", "reasons in the plan", plan["by_reason"], {"exhausted": 1})
        # Nothing moves before the approval.
        self.holds.equal("demo", "requests before the approval", len(self.receivers.received(webhook.path)), BUDGET)
        self.stack.ask("approve", plan_id=plan["plan_id"], digest=plan["digest"], redrive_id=f"demo_{self.run}",
                       reason="receiver repaired", operator=OPERATOR)
        self.screen.say(f"  Approved  by {OPERATOR}, redrive id demo_{self.run}")
        self.watch([webhook], lambda row: row.ended and row.delivery["generation"] == 1, REDRIVE_DEADLINE_SECONDS)
        done = self.stack.ask("status", plan_id=plan["plan_id"])["plan"]
        figures = {name: done[name] for name in ("state", "released", "delivered", "failed", "skipped", "remaining")}
        self.screen.say(f"  Plan      {figures['state']}: {figures['released']} released,"
                        f" {figures['delivered']} delivered, {figures['failed']} failed, {figures['skipped']} skipped")
        self.holds.equal("demo", "plan", figures, {"state": "completed", "released": 1, "delivered": 1, "failed": 0,
                                                   "skipped": 0, "remaining": 0})
        releases = [entry for entry in webhook.row.history if "released_at" in entry]
        self.holds.equal(webhook.name, "plan and generation of the release",
                         [(entry["plan"], entry["generation"]) for entry in releases], [(plan["plan_id"], 1)])

    def compare(self):
        for webhook in WEBHOOKS:
            try:
                answer = self.stack.ask("explain", id=webhook.event)
            except Refused as refusal:
                self.holds.true(webhook.name, str(refusal), False)
                continue
            webhook.row.update(None, answer)  # the summary shows what was compared
            check(webhook.expected, webhook, answer, self.receivers.received(webhook.path), WAITS, self.holds)
        silent = self.receivers.received("/silent")
        self.holds.true("silent", "the receiver did not have the whole webhook when the attempt timed out",
                        bool(silent) and silent[0].body == BY_NAME["silent"].body)
        limited = self.receivers.received("/limited")
        pause = limited[1].at - limited[0].answered_at if len(limited) > 1 else 0
        self.holds.true("limited", f"tried again {seconds(pause)} after it asked for {PAUSE_SECONDS} s",
                        pause >= PAUSE_SECONDS)
        self.holds.equal("demo", "requests to other paths", len(self.receivers.unexpected()), 0)


def summarise(screen, receivers, holds):
    screen.title("Summary")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "webhook", "its receiver", "attempts", "ended as"):
        table.add_column(column, no_wrap=column != "its receiver")
    for webhook in WEBHOOKS:
        faults = holds.of(webhook.name)
        delivery = webhook.row.delivery if webhook.row else None
        ended = (delivery["state"].replace("_", "-") if delivery else "not on record")
        if delivery and delivery["reason"]:
            ended += f" ({delivery['reason']})"
        if delivery and delivery["generation"]:
            ended += " by the redrive"
        table.add_row("FAILED" if faults else "ok", webhook.name, webhook.story,
                      str(delivery["attempt"]) if delivery else "0", ended, style="red" if faults else "")
    screen.table(table)
    screen.say()
    copies = [request.event for request in receivers.received("/silent")]
    if len(copies) == 2 and len(set(copies)) == 1:
        screen.say("silent got its webhook twice, because nobody could know that the first arrived.\n"
                   "Both carry the same webhook-id, so that a receiver can drop the second.")
        screen.say()
    if holds.broken:
        screen.say(f"{len(holds.broken)} of {holds.held + len(holds.broken)} expectations did not hold:", "bold red")
        for line in holds.broken:
            screen.say(f"  {line}")
        screen.say("The functions' log is .local/logs/emulator.log.")
    else:
        screen.say(f"All {holds.held} expectations held, in {screen.elapsed():.0f} s.", "bold green")


def next_steps(screen):
    screen.title("Now you")
    screen.say("The stack is still up. In another terminal, start a receiver:")
    screen.say("  python3 local/receiver.py")
    screen.say("Send your own webhook to it:")
    screen.say("  .venv/sam/bin/python local/webhook.py send http://127.0.0.1:9000/ '{\"hello\": \"world\"}'")
    screen.say("Look at any webhook, for example the one that was redriven:")
    screen.say(f"  .venv/sam/bin/python local/webhook.py explain {BY_NAME['broken'].event}")
    screen.say("Stop the stack (what is in it is gone):")
    screen.say("  make down")


def main():
    screen = Screen()
    holds = Expectations()
    try:
        stack = Stack()
        with Receivers({webhook.path: webhook.behaviour for webhook in WEBHOOKS}) as receivers:
            Demo(screen, stack, receivers, holds).tell()
            summarise(screen, receivers, holds)
        next_steps(screen)
    except NoStack as problem:
        print(problem, file=sys.stderr)
        return 1
    except (BotoCoreError, ClientError) as error:
        screen.close()
        print(f"\nThe local stack did not answer as hoped: {error}\n"
              "`make up` starts it; its log is .local/logs/emulator.log.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.close()
        print("\nInterrupted. The stack is still up; `make down` stops it.", file=sys.stderr)
        return 130
    finally:
        screen.close()
    return 1 if holds.broken else 0


if __name__ == "__main__":
    sys.exit(main())
