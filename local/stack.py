#!/usr/bin/env python3
"""The local stack: the real template and the real binaries on an AWS emulator.

    python3 local/stack.py up      start, build, deploy; quick when nothing changed
    python3 local/stack.py down    stop the emulator; everything in it is gone
    python3 local/stack.py tools   only install the SAM CLI and the linters
    python3 local/stack.py verifiers   only install the official verifiers of signatures

The result is .local/stack.json, which tests and the demo read. Needs nothing but
Python, Rust and a C compiler; no Docker, no AWS account, no network beyond the
package registries. REDELIVER_PORT chooses another port, SAM_BUILD_MODE=debug
builds without optimisation.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time

import emulator
import preflight
import venvs
from paths import ACCOUNT, ENDPOINT, REGION, ROOT, STACK_FILE, STATE, local_aws_environment, tool
from steps import Problem, step

STACK_NAME = "redeliver-local"
BUILT = STATE / "build"
DEPLOYED = STATE / "deployed.json"

# What differs from the template's defaults: short times, and receivers on the
# loopback address. The visibility timeout is below six function timeouts here on
# purpose, so that crash recovery can be watched; see the template for production.
PARAMETERS = {
    "Architecture": "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64",
    "RetryScheduleSeconds": "1,2,2,3,3,4,4",
    "HintCapSeconds": "600",
    "RequestTimeoutSeconds": "5",
    "FunctionTimeoutSeconds": "10",
    "LeaseSeconds": "12",
    "VisibilityTimeoutSeconds": "20",
    "OverdueGraceSeconds": "10",
    "EgressAllowCidrs": "127.0.0.0/8",
    "AllowedPorts": "any",
    "AllowHttp": "true",
    "AllowInlineUrls": "true",
}

FUNCTIONS = ["deliver", "schedule-retry", "dlq-sweep", "redrive-approve"]

# What a deployment is made from; a change in any of it means build and deploy.
SOURCES = [
    "template.yaml", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo/config.toml",
    "functions", "shared", "local",
]
NOT_DEPLOYED = {
    "demo.py", "expectations.py", "receiver.py", "timeline.py", "webhook.py", "local_test.py",
    "check_template.py", "smoke.py", "test.sh", "fuzz.sh", "testkit", "verify", "requirements-verify.in",
    "requirements-verify.txt",
}


def sources_digest():
    digest = hashlib.sha256(os.environ.get("SAM_BUILD_MODE", "").encode())
    for source in SOURCES:
        path = ROOT / source
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts and NOT_DEPLOYED.isdisjoint(file.relative_to(ROOT).parts):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{file.relative_to(ROOT)} {content}\n".encode())
    return digest.hexdigest()


def up():
    started = time.monotonic()
    preflight.check_python()
    preflight.check_rust()
    venvs.ensure_emulator()
    venvs.ensure_sam()
    record = emulator.ensure()
    # Taken before the build: an edit during it means another build next time.
    state = {"sources": sources_digest(), "emulator": record["identity"]}
    if STACK_FILE.exists() and read_json(DEPLOYED) == state:
        print(f"The local stack is up at {ENDPOINT}; nothing has changed.")
        return
    build()
    deploy()
    write_stack_file(record)
    DEPLOYED.write_text(json.dumps(state))
    print(f"The local stack is up at {ENDPOINT} ({time.monotonic() - started:.0f} s).")
    print("It is described in .local/stack.json; `make down` stops it.")


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def overrides():
    return ["--parameter-overrides", *(f"ParameterKey={k},ParameterValue={v}" for k, v in quoted())]


def quoted():
    # sam splits values at commas unless they are quoted.
    return [(name, f'"{value}"') for name, value in PARAMETERS.items()]


def build():
    # The first build compiles everything and takes minutes; later ones seconds.
    with step("Build the functions", "build.log") as building:
        if os.environ.get("SAM_BUILD_MODE") != "debug":
            # sam builds one function after the other, and linking each takes a core for a minute or more. All at
            # once first, in the same way, leaves it nothing but to pack the binaries.
            building.run(
                [tool("sam", "cargo-lambda"), "lambda", "build", "--release",
                 *(word for function in FUNCTIONS for word in ("--package", function)),
                 *(["--arm64"] if PARAMETERS["Architecture"] == "arm64" else [])],
                env=local_aws_environment(),
                watch=lambda line: found.group(1) if (found := re.search(r"Compiling (\S+)", line)) else None,
            )
        building.run(
            [tool("sam", "sam"), "build", "--template-file", "template.yaml", "--build-dir", BUILT,
             *overrides()],
            env=local_aws_environment(),
            watch=lambda line: found.group(1) if (found := re.search(r"functions?: (\w+)", line)) else None,
        )


def deploy():
    with step("Deploy the template", "deploy.log") as deploying:
        ask_aws("make-bucket")
        deploying.remedy = "`make down` and then `make up` starts over with an empty emulator."
        deploying.run(
            [tool("sam", "sam"), "deploy", "--template-file", BUILT / "template.yaml",
             "--stack-name", STACK_NAME, "--s3-bucket", STACK_NAME, "--region", REGION,
             "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset",
             "--no-fail-on-empty-changeset", "--no-progressbar", *overrides()],
            env=local_aws_environment(),
            watch=lambda line: found.group(1) if (found := re.search(r"_COMPLETE\s+\S+\s+(\w+)", line)) else None,
        )
        ask_aws("mend-mappings")


def ask_aws(question):
    """The AWS API is asked with boto3, which lives in the SAM environment."""
    answer = subprocess.run(
        [tool("sam", "python"), ROOT / "local" / "aws.py", question, STACK_NAME],
        env=local_aws_environment(), capture_output=True, text=True,
    )
    if answer.returncode != 0:
        raise Problem(f"asking the emulator ({question}) failed:\n{answer.stderr.strip()}")
    return json.loads(answer.stdout)


def write_stack_file(record):
    outputs = ask_aws("outputs")
    # The emulator serves function URLs below its own address.
    url_id = re.match(r"https://([a-z0-9]+)\.lambda-url\.", outputs["OperatorUrl"]).group(1)
    stack = {
        "endpoint_url": ENDPOINT,
        "region": REGION,
        "account_id": ACCOUNT,
        "intake_queue_url": outputs["IntakeQueueUrl"],
        "retry_queue_url": outputs["RetryQueueUrl"],
        "intake_dlq_url": outputs["IntakeDlqUrl"],
        "retry_dlq_url": outputs["RetryDlqUrl"],
        "deliveries_table": outputs["DeliveriesTableName"],
        "payloads_table": outputs["PayloadsTableName"],
        "endpoints_table": outputs["EndpointsTableName"],
        "functions": {
            "deliver": outputs["DeliverFunctionName"],
            "schedule_retry": outputs["ScheduleRetryFunctionName"],
            "dlq_sweep": outputs["DlqSweepFunctionName"],
            "redrive_approve": outputs["RedriveApproveFunctionName"],
        },
        "operator_url": f"{ENDPOINT}/_aws/lambda-url/{url_id}/",
        "operator_function": outputs["OperatorFunction"],
        "rules": {"arm": outputs["ArmRuleName"], "reconcile": outputs["ReconcileRuleName"]},
        "emulator_pid": record["pid"],
        "emulator_log": str(emulator.LOG.relative_to(ROOT)),
        "stack_name": STACK_NAME,
    }
    STACK_FILE.write_text(json.dumps(stack, indent=2) + "\n")


def down():
    STACK_FILE.unlink(missing_ok=True)
    DEPLOYED.unlink(missing_ok=True)
    if emulator.stop():
        print("The local stack is stopped.")
    else:
        print("The local stack is not running.")
    shutil.rmtree(emulator.DATA, ignore_errors=True)


def tools():
    preflight.check_python()
    venvs.ensure_sam()


def verifiers():
    preflight.check_python()
    preflight.check_node()
    venvs.ensure_verifiers()


COMMANDS = {"up": up, "down": down, "tools": tools, "verifiers": verifiers}


def main(arguments):
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    STATE.mkdir(exist_ok=True)
    with open(STATE / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Waiting for another `make up`, `make down` or `make check` in this folder ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            COMMANDS[arguments[0]]()
        except Problem as problem:
            print(f"\n{problem}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nInterrupted.", file=sys.stderr)
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
