"""What must be true at the end of the demo: on record, and at the receiver.

Nothing here stops at the first fault: every expectation is looked at, and those
that did not hold are listed.
"""


class Expectations:
    def __init__(self):
        self.held = 0
        self.broken = []

    def equal(self, webhook, what, found, wanted):
        self.true(webhook, f"{what}: {found!r} instead of {wanted!r}", found == wanted)

    def true(self, webhook, otherwise, holds):
        """`otherwise` is what to say when it does not hold."""
        if holds:
            self.held += 1
        else:
            self.broken.append(f"{webhook}: {otherwise}")

    def of(self, webhook):
        """How many did not hold for one webhook."""
        return sum(1 for line in self.broken if line.startswith(f"{webhook}: "))


def check(expected, sent, answer, requests, waits, holds):
    """Compares one webhook's story with what was planned.

    `expected`: state, reason, classes, statuses, generation. `sent`: id and body.
    `answer`: of `explain`. `requests`: what its receiver got. `waits`: the retry
    schedule in seconds. `holds`: where to note it.
    """
    name = sent.name
    delivery = answer["delivery"]
    attempts = [entry for entry in answer["history"] if "number" in entry]
    releases = [entry for entry in answer["history"] if "released_at" in entry]
    tries = len(expected.classes)

    holds.equal(name, "state", delivery["state"], expected.state)
    holds.equal(name, "reason", delivery["reason"], expected.reason)
    holds.equal(name, "attempts on record", delivery["attempt"], tries)
    holds.equal(name, "numbers of the attempts", [a["number"] for a in attempts], list(range(1, tries + 1)))
    holds.equal(name, "what the attempts count as", [a["class"] for a in attempts], expected.classes)
    holds.equal(name, "statuses on record", [a["status"] for a in attempts], expected.statuses)
    holds.equal(name, "generation", delivery["generation"], expected.generation)
    holds.equal(name, "releases by a plan", len(releases), expected.generation)
    unknown = [a["number"] for a in attempts if a["class"] == "unknown"]
    told = [a["number"] for a in attempts if a["receiver_may_have_it"]]
    holds.equal(name, 'attempts marked "the receiver may have it"', told, unknown)

    holds.equal(name, "requests at the receiver", len(requests), tries)
    holds.equal(name, "statuses that the receiver gave", [r.status for r in requests], expected.statuses)
    holds.equal(name, "event ids at the receiver", {r.event for r in requests}, {sent.event})
    numbers = [r.headers.get("redeliver-attempt") for r in requests]
    holds.equal(name, "attempt numbers at the receiver", numbers, [str(n) for n in range(1, tries + 1)])
    altered = sum(1 for r in requests if r.body != sent.body)
    holds.true(name, f"{altered} of {len(requests)} bodies differ from the bytes that were sent", altered == 0)

    _check_waits(name, attempts, requests, waits, holds)


def _check_waits(name, attempts, requests, waits, holds):
    """No attempt came before its time. Jitter and hints only add."""
    used = 0
    for before, after, request in zip(attempts, attempts[1:], requests[1:]):
        used += 1
        if before["decision"] != "waiting":
            used = 0  # a redrive gives a new budget, and its time is the operator's
            continue
        ended = before["started"] + before["duration_ms"]
        due = max(ended + 1000 * waits[used - 1], before["hint"] or 0)
        number = after["number"]
        holds.true(name, f"attempt {number} came {(due - 1000 * request.at) / 1000:.2f} s too early",
                   1000 * request.at >= due)
