"""Is a deployed stack alive? Asks its operator and sweep functions, and changes nothing.

Uses the AWS configuration of the caller: smoke.py STACK_NAME
It proves that both functions start, read their configuration and reach the
tables. It sends no webhook; for that, put a message on the intake queue.
"""

import json
import sys

import boto3
from botocore.exceptions import BotoCoreError, ClientError

QUESTIONS = [
    ("RedriveApproveFunctionName", {"action": "list", "state": "dead_lettered", "limit": 1}),
    ("DlqSweepFunctionName", {"run": "reconcile", "mode": "observe"}),
]


def ask(stack_name):
    [stack] = boto3.client("cloudformation").describe_stacks(StackName=stack_name)["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    functions = boto3.client("lambda")
    alive = True
    for name, question in QUESTIONS:
        reply = functions.invoke(FunctionName=outputs[name], Payload=json.dumps(question))
        answer = json.loads(reply["Payload"].read())
        good = "FunctionError" not in reply and (answer or {}).get("ok", True) is True
        alive = alive and good
        print(f"{'ok    ' if good else 'FAILED'} {outputs[name]} {json.dumps(question)}")
        print(f"       {json.dumps(answer)}")
    return alive


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        sys.exit(0 if ask(sys.argv[1]) else 1)
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"AWS did not answer as hoped: {error}")
