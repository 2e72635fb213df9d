"""The few things that stack.py asks of the AWS API. Runs in the SAM environment.

    aws.py make-bucket NAME    where sam deploy puts the binaries
    aws.py outputs NAME        the outputs of a stack, as JSON
    aws.py mend-mappings NAME  make up for a fault of the emulator, see there
"""

import json
import sys

import boto3


def make_bucket(name):
    boto3.client("s3").create_bucket(Bucket=name)
    return {}


def outputs(name):
    [stack] = boto3.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def mend_mappings(_):
    """The emulator keeps a number that came through a template parameter as text.
    Its queue poller then fails on MaximumConcurrency, and typed clients cannot read
    ParallelizationFactor. The same number, set again through the API, is kept as a
    number.
    """
    client = boto3.client("lambda")
    for mapping in client.list_event_source_mappings()["EventSourceMappings"]:
        limit = mapping.get("ScalingConfig", {}).get("MaximumConcurrency")
        if limit is not None:
            client.update_event_source_mapping(
                UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": int(limit)})
        factor = mapping.get("ParallelizationFactor")
        if factor is not None:
            client.update_event_source_mapping(UUID=mapping["UUID"], ParallelizationFactor=int(factor))
    return {}


QUESTIONS = {"make-bucket": make_bucket, "outputs": outputs, "mend-mappings": mend_mappings}

if __name__ == "__main__":
    question, name = sys.argv[1:]
    print(json.dumps(QUESTIONS[question](name)))
