#!/usr/bin/env python3
"""Send a webhook through the local stack, and ask what became of it.

    .venv/sam/bin/python local/webhook.py send URL JSON     prints the event id
    .venv/sam/bin/python local/webhook.py explain ID        what happened, what is next
    .venv/sam/bin/python local/webhook.py ask '{"action": "list", "state": "dead_lettered"}'

`ask` takes any operator action. `make up` installs what this needs.
"""

import argparse
import json
import os
import secrets
import sys
import time
from urllib.parse import urlsplit

import boto3
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from paths import STACK_FILE, local_aws_environment


class Refused(Exception):
    """The operator function said no; the text says why."""


class NoStack(Exception):
    """There is no local stack to talk to."""


class Stack:
    """The local stack, as a producer and as an operator see it."""

    def __init__(self):
        try:
            stack = json.loads(STACK_FILE.read_text())
        except (OSError, ValueError):
            raise NoStack("The local stack is not up: run `make up` first.") from None
        # Nothing of the caller's own AWS configuration may be used here.
        environment = local_aws_environment()
        os.environ.clear()
        os.environ.update(environment)
        session = boto3.Session(region_name=stack["region"])
        where = {
            "endpoint_url": stack["endpoint_url"],
            "config": Config(connect_timeout=3, read_timeout=60, retries={"total_max_attempts": 2}),
        }
        self.intake = stack["intake_queue_url"]
        self.approver = stack["functions"]["redrive_approve"]
        self._queues = session.client("sqs", **where)
        self._functions = session.client("lambda", **where)
        self._deliveries = session.resource("dynamodb", **where).Table(stack["deliveries_table"])

    def send(self, event, url, body):
        """Puts a webhook on the intake queue. `body` is JSON text, and goes out exactly as it is."""
        message = f'{{"id": {json.dumps(event)}, "url": {json.dumps(url)}, "json": {body}}}'
        self._queues.send_message(QueueUrl=self.intake, MessageBody=message,
                                  MessageGroupId=urlsplit(url).netloc[:128] or "none")

    def record(self, event):
        """The stored delivery of an event that has one endpoint, or None while there is none."""
        condition = Key("pk").eq(f"E#{event}") & Key("sk").begins_with("D#")
        found = self._deliveries.query(KeyConditionExpression=condition, ConsistentRead=True)["Items"]
        return found[0] if found else None

    def ask(self, action, **fields):
        """An operator action and its answer."""
        question = json.dumps({"action": action, **fields})
        reply = self._functions.invoke(FunctionName=self.approver, Payload=question)
        answer = json.loads(reply["Payload"].read())
        if "FunctionError" in reply:
            raise Refused(f"{action} failed: {json.dumps(answer)}")
        if not answer.get("ok"):
            error = answer.get("error", {})
            raise Refused(f"{action}: {error.get('message', answer)} ({error.get('code', 'no code')})")
        return answer


def outcome(attempt):
    """The outcome of an attempt of a history, in plain words."""
    words = {
        "accepted": "accepted",
        "throttled": "asks for a pause",
        "transient": "failed, may work later",
        "unknown": "no answer, the receiver may have it",
        "permanent": "refused for good",
        "gone": "says that it is gone for good",
        "blocked": "not allowed",
    }[attempt["class"]]
    what = attempt["status"] or attempt["detail"]
    return f"{what}, {words}" if what else words


def _tell(answer):
    delivery = answer["delivery"]
    begin = delivery["accepted_at"]
    print(f"{delivery['id']}: {delivery['state']}" + (f" ({delivery['reason']})" if delivery["reason"] else ""))
    for entry in answer["history"]:
        if "released_at" in entry:
            at, text = entry["released_at"], f"released by {entry['plan']}"
        else:
            at, text = entry["started"], f"attempt {entry['number']}: {outcome(entry)}"
        print(f"  {(at - begin) / 1000:6.1f} s  {text}")
    print(f"  next: {answer['next']}")


def _send(stack, url, body):
    event = f"mine_{int(time.time())}_{secrets.token_hex(2)}"
    stack.send(event, url, body)
    print(f"Sent as {event}. What became of it:")
    print(f"  .venv/sam/bin/python local/webhook.py explain {event}")


def _json(text):
    try:
        json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    return text


def _action(text):
    value = json.loads(_json(text))
    if not isinstance(value, dict) or not isinstance(value.get("action"), str):
        raise argparse.ArgumentTypeError('an action is a JSON object such as {"action": "list", "state": "held"}')
    return value


def _parser():
    parser = argparse.ArgumentParser(description="Send a webhook through the local stack, and ask what became of it.")
    commands = parser.add_subparsers(dest="command", required=True)
    send = commands.add_parser("send", help="put a webhook on the intake queue")
    send.add_argument("url")
    send.add_argument("body", type=_json, help="JSON, sent exactly as it is")
    explain = commands.add_parser("explain", help="what happened to a webhook, and what is next")
    explain.add_argument("id")
    ask = commands.add_parser("ask", help="any operator action, as JSON")
    ask.add_argument("action", type=_action)
    return parser


def main():
    options = _parser().parse_args()
    try:
        stack = Stack()
        if options.command == "send":
            _send(stack, options.url, options.body)
        elif options.command == "explain":
            _tell(stack.ask("explain", id=options.id))
        else:
            print(json.dumps(stack.ask(**options.action), indent=2))
    except (NoStack, Refused) as error:
        print(error, file=sys.stderr)
        return 1
    except (BotoCoreError, ClientError) as error:
        print(f"The local stack did not answer as hoped: {error}\n`make up` starts it.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
