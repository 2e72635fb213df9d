"""What must not drift in template.yaml, asserted on the template as SAM deploys it.

Runs in the SAM environment: .venv/sam/bin/python local/check_template.py
Prints each claim that fails and ends with 1, or says how many hold.
"""

import json
import os
import re
import sys
from pathlib import Path

import yaml
from samtranslator.public.translator import ManagedPolicyLoader
from samtranslator.translator.transform import transform

TEMPLATE = Path(__file__).resolve().parent.parent / "template.yaml"

TIMES = ["REQUEST_TIMEOUT_SECONDS", "FUNCTION_TIMEOUT_SECONDS", "LEASE_SECONDS", "VISIBILITY_TIMEOUT_SECONDS"]
ENVIRONMENT = {
    "Deliver": {
        "DELIVERIES_TABLE", "PAYLOADS_TABLE", "ENDPOINTS_TABLE", "RETRY_QUEUE_ARN",
        "RETRY_SCHEDULE_SECONDS", "MAX_ATTEMPTS", "RETRY_JITTER_PERCENT", "HINT_CAP_SECONDS", *TIMES,
        "MAX_BODY_BYTES", "RECORD_RETENTION_DAYS", "PAYLOAD_RETENTION_DAYS",
        "ALLOW_INLINE_URLS", "ALLOW_HTTP", "ALLOWED_PORTS", "EGRESS_ALLOW_CIDRS",
        "EGRESS_ALLOW_HOSTS", "PRIVATE_CA_PEM",
    },
    "ScheduleRetry": {"RETRY_QUEUE_URL"},
    "DlqSweep": {
        "DELIVERIES_TABLE", "PAYLOADS_TABLE", "RETRY_QUEUE_URL", "INTAKE_DLQ_URL",
        "RETRY_DLQ_URL", "MAX_ATTEMPTS", *TIMES, "OVERDUE_GRACE_SECONDS", "MAX_BODY_BYTES",
        "RECORD_RETENTION_DAYS", "PAYLOAD_RETENTION_DAYS", "ALLOW_INLINE_URLS",
    },
    "RedriveApprove": {
        "DELIVERIES_TABLE", "PAYLOADS_TABLE", "RECORD_RETENTION_DAYS", "PAYLOAD_RETENTION_DAYS",
        "OPERATOR_ALIAS", "REQUIRE_SECOND_PERSON",
    },
}
# Exactly what each role may do beside writing its logs: {resource: actions}.
QUEUE_READER = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
RECORD_KEEPER = {f"dynamodb:{a}" for a in ("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "Query")}
RIGHTS = {
    "Deliver": {
        "DeliveriesTable": {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
        "PayloadsTable": {"dynamodb:Query", "dynamodb:PutItem", "dynamodb:UpdateItem"},
        "EndpointsTable": {"dynamodb:GetItem", "dynamodb:PutItem"},
        "EndpointsTableKey": {"kms:Decrypt", "kms:DescribeKey"},
        "IntakeQueue": QUEUE_READER,
        "RetryQueue": QUEUE_READER,
    },
    "ScheduleRetry": {
        "DeliveriesTable": {f"dynamodb:{a}" for a in ("DescribeStream", "GetRecords", "GetShardIterator")},
        "*": {"dynamodb:ListStreams"},
        "RetryQueue": {"sqs:SendMessage", "sqs:GetQueueAttributes"},
    },
    "DlqSweep": {
        "DeliveriesTable": RECORD_KEEPER,
        "PayloadsTable": {"dynamodb:PutItem", "dynamodb:UpdateItem"},
        "IntakeDlq": QUEUE_READER,
        "RetryDlq": QUEUE_READER,
        "RetryQueue": {"sqs:GetQueueAttributes"},
    },
    "RedriveApprove": {
        "DeliveriesTable": RECORD_KEEPER,
        "PayloadsTable": {"dynamodb:UpdateItem"},
    },
}


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms (!Ref, !GetAtt, ...)."""


def _short_form(loader, suffix, node):
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)


class _NoManagedPolicies(ManagedPolicyLoader):
    """Every role is written out, so SAM needs no list of AWS's policies."""

    def __init__(self):
        self._policy_map = {}
        self.max_pages = 0


def load():
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # SAM asks for one; any will do
    written = yaml.load(TEMPLATE.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (a SafeLoader)
    source = json.loads(json.dumps(written))
    for resource in source["Resources"].values():
        # `sam package` replaces the folder by the uploaded archive; so do we.
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = {"Bucket": "bucket", "Key": "key"}
    return written, transform(source, {}, _NoManagedPolicies())


def as_list(value):
    return value if isinstance(value, list) else [value]


def named_resource(value):
    """The logical id that a Resource element speaks of."""
    if value == "*":
        return "*"
    if "Fn::GetAtt" in value:
        return value["Fn::GetAtt"][0]
    return re.match(r"\$\{(\w+)", value["Fn::Sub"]).group(1)


def statements(role):
    for policy in role["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            yield statement["Fn::If"][1] if "Fn::If" in statement else statement


def rights(role):
    found = {}
    for statement in statements(role):
        for resource in as_list(statement["Resource"]):
            found.setdefault(named_resource(resource), set()).update(as_list(statement["Action"]))
    return found


def claims():
    """Yields (claim, whether it holds)."""
    written, deployed = load()
    parameters = written["Parameters"]
    resources = deployed["Resources"]

    def default(name):
        return int(parameters[name]["Default"])

    def of_type(kind):
        return {k: r["Properties"] for k, r in resources.items() if r["Type"] == kind}

    request, function, lease, visibility = map(default, (
        "RequestTimeoutSeconds", "FunctionTimeoutSeconds", "LeaseSeconds", "VisibilityTimeoutSeconds"))
    yield "defaults: request timeout < function timeout < lease < visibility", \
        request < function < lease < visibility
    yield "defaults: visibility is at least 6 function timeouts", visibility >= 6 * function
    yield "defaults: records outlive the dead letter queues", default("RecordRetentionDays") >= 18
    yield "defaults: payloads outlive the records", default("PayloadRetentionDays") >= default("RecordRetentionDays")

    body = TEMPLATE.read_text(encoding="utf-8").split("\nConditions:")[1]
    for name, parameter in parameters.items():
        yield f"parameter {name} is used", re.search(rf"!Ref {name}\b|\${{{name}}}", body) is not None
        yield f"parameter {name} is described and bounded", (
            "Description" in parameter and "ConstraintDescription" in parameter
            and any(k in parameter for k in ("AllowedValues", "AllowedPattern", "MinValue")))

    queues = of_type("AWS::SQS::Queue")
    for source in ("IntakeQueue", "RetryQueue"):
        queue = queues[source]
        dead = queues[queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]]
        yield f"{source}: its dead letter queue keeps messages longer", \
            dead["MessageRetentionPeriod"] > queue["MessageRetentionPeriod"]
        yield f"{source}: visibility is the parameter", \
            queue["VisibilityTimeout"] == {"Ref": "VisibilityTimeoutSeconds"}
    yield "transport budgets: 20 receives on intake, 5 on retry", [
        queues[q]["RedrivePolicy"]["maxReceiveCount"] for q in ("IntakeQueue", "RetryQueue")] == [20, 5]
    yield "every queue is encrypted", all(q.get("SqsManagedSseEnabled") is True for q in queues.values())

    mappings = of_type("AWS::Lambda::EventSourceMapping")
    yield "three event source mappings", len(mappings) == 3
    for name, mapping in mappings.items():
        yield f"{name}: reports partial failures", \
            mapping.get("FunctionResponseTypes") == ["ReportBatchItemFailures"]
        if "StartingPosition" in mapping:
            yield f"{name}: retries of a stream batch are bounded", (
                mapping.get("MaximumRetryAttempts", -1) >= 0
                and mapping.get("MaximumRecordAgeInSeconds", -1) > 0
                and mapping.get("BisectBatchOnFunctionError") is True)
            [pattern] = mapping["FilterCriteria"]["Filters"]
            yield f"{name}: carries only waiting records", json.loads(pattern["Pattern"]) == {
                "eventName": ["INSERT", "MODIFY"],
                "dynamodb": {"NewImage": {"state": {"S": ["waiting"]}}}}
        else:
            yield f"{name}: has a concurrency limit", "MaximumConcurrency" in mapping.get("ScalingConfig", {})

    functions = of_type("AWS::Lambda::Function")
    roles = of_type("AWS::IAM::Role")
    yield "exactly four functions", set(functions) == {f"{n}Function" for n in ENVIRONMENT}
    yield "no role but the four written here", set(roles) == {f"{n}Role" for n in RIGHTS}
    for name, wanted in ENVIRONMENT.items():
        properties = functions[f"{name}Function"]
        variables = properties["Environment"]["Variables"]
        yield f"{name}: environment names {sorted(set(variables) ^ wanted) or ''}", set(variables) == wanted
        yield f"{name}: recursion is allowed", properties.get("RecursiveLoop") == "Allow" or \
            written["Globals"]["Function"].get("RecursiveLoop") == "Allow"
        yield f"{name}: logs are JSON in a group of its own", \
            properties["LoggingConfig"]["LogFormat"] == "JSON" and \
            properties["LoggingConfig"]["LogGroup"] == {"Ref": f"{name}LogGroup"}
        role = roles[f"{name}Role"]
        found = rights(role)
        yield f"{name}: may write only its own logs", found.pop(f"{name}LogGroup", None) == {
            "logs:CreateLogStream", "logs:PutLogEvents"}
        yield f"{name}: rights are exactly those listed here", found == RIGHTS[name]
        yield f"{name}: no wildcard in an action", not any("*" in a for actions in found.values() for a in actions)
        yield f"{name}: no managed policy", not role.get("ManagedPolicyArns")
        if name != "Deliver":
            yield f"{name}: never mentions the endpoints", "Endpoints" not in json.dumps([properties, role])
    [writes] = [s for s in statements(roles["DeliverRole"]) if named_resource(as_list(s["Resource"])[0])
                == "EndpointsTable" and "dynamodb:PutItem" in s["Action"]]
    yield "deliver may write the root keys of inline URLs, and no endpoint", writes.get("Condition") == {
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["#inline-keys"]}}
    senders = [name for name in RIGHTS if "sqs:SendMessage" in json.dumps(roles[f"{name}Role"])]
    yield "only schedule-retry may send messages", senders == ["ScheduleRetry"]
    yield "deliver's timeout is the parameter", \
        functions["DeliverFunction"]["Timeout"] == {"Ref": "FunctionTimeoutSeconds"}

    urls = of_type("AWS::Lambda::Url")
    aliases = of_type("AWS::Lambda::Alias")
    yield "one function URL: signed, on the alias of redrive-approve", [
        (u["AuthType"], u["TargetFunctionArn"]) for u in urls.values()
    ] == [("AWS_IAM", {"Ref": "RedriveApproveFunctionAliaslive"})]
    yield "OPERATOR_ALIAS names that alias", \
        [a["Name"] for a in aliases.values()] == ["live"] and \
        functions["RedriveApproveFunction"]["Environment"]["Variables"]["OPERATOR_ALIAS"] == "live"

    tables = {k: r for k, r in resources.items() if r["Type"] == "AWS::DynamoDB::Table"}
    for name, table in tables.items():
        yield f"{name}: kept when the stack goes, restorable", (
            table.get("DeletionPolicy") == table.get("UpdateReplacePolicy") == "Retain"
            and table["Properties"]["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True)
        wanted = {} if name == "EndpointsTable" else {"AttributeName": "expires_at", "Enabled": True}
        yield f"{name}: expiry", table["Properties"].get("TimeToLiveSpecification", {}) == wanted
    yield "only deliveries have a stream", [
        name for name, table in tables.items() if "StreamSpecification" in table["Properties"]
    ] == ["DeliveriesTable"]
    inputs = [json.loads(t["Input"]["Fn::Sub"] if isinstance(t["Input"], dict) else t["Input"])
              for rule in of_type("AWS::Events::Rule").values() for t in rule["Targets"]]
    yield "two rules: arm and reconcile", sorted(i["run"] for i in inputs) == ["arm", "reconcile"]


def main():
    results = list(claims())
    failed = [claim for claim, holds in results if not holds]
    for claim in failed:
        print(f"template.yaml: does not hold: {claim}")
    if not failed:
        print(f"template.yaml: all {len(results)} claims hold.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
