"""The emulator's process: start it, recognise it again, stop it.

Only the process that we started is ever stopped. It is known by its process id
together with its start time, because an id alone may be reused.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from paths import ENDPOINT, HOST, LOGS, PORT, ROOT, STATE, local_aws_environment, tool
from steps import Problem, step

RECORD = STATE / "emulator.json"
DATA = STATE / "emulator"
LOG = LOGS / "emulator.log"
START_SECONDS = 60
STOP_SECONDS = 10


def running():
    """The record of our running emulator, or None."""
    try:
        record = json.loads(RECORD.read_text())
    except (OSError, ValueError):
        return None
    return record if record["identity"] and record["identity"] == _identity(record["pid"]) else None


def _identity(pid):
    """A text that no other process with this id will ever have; None if it is gone."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # Fields after the command's name, which is in brackets: state first.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else f"started at tick {fields[19]}"
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return shown.stdout.strip() or None


def answers():
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{ENDPOINT}/_ministack/health", timeout=2) as reply:
            return reply.status == 200
    except (OSError, urllib.error.URLError):
        return False


def ensure():
    """Make sure our emulator runs on the wanted port; answers its record."""
    record = running()
    if record and record["port"] != PORT:
        raise Problem(
            f"The local stack already runs on port {record['port']}.\n"
            f"Stop it with `make down` before starting it on port {PORT}."
        )
    if record and answers():
        return record
    if record:
        stop()
    return _start()


def _start():
    with socket.socket() as probe:
        probe.settimeout(2)
        if probe.connect_ex((HOST, PORT)) == 0:
            raise Problem(
                f"Port {PORT} is in use by another program.\n"
                f"Choose another port: REDELIVER_PORT={PORT + 1} make up"
            )
    with step("Start the AWS emulator") as starting:
        starting.log = LOG
        shutil.rmtree(DATA, ignore_errors=True)
        (DATA / "tmp").mkdir(parents=True)
        env = local_aws_environment()
        env.update(
            BIND_HOST=HOST,
            GATEWAY_PORT=str(PORT),
            MINISTACK_HOST=HOST,  # the host in queue URLs
            MINISTACK_REGION=env["AWS_REGION"],
            STATE_DIR=str(DATA / "state"),
            S3_DATA_DIR=str(DATA / "s3"),
            TMPDIR=str(DATA / "tmp"),
            # These two would listen on every address of the machine.
            IOT_MTLS_ENABLED="0",
            SFTP_ENABLED="0",
            LAMBDA_EXECUTOR="local",
            # Enough for the template's concurrency limits on any machine.
            LAMBDA_ACCOUNT_CONCURRENCY="100",
        )
        with open(LOG, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [str(tool("emulator", "ministack"))], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )
        record = {"pid": process.pid, "port": PORT, "identity": _identity(process.pid)}
        RECORD.write_text(json.dumps(record))
        deadline = time.monotonic() + START_SECONDS
        while not answers():
            if process.poll() is not None:
                RECORD.unlink()
                raise Problem(f"the emulator stopped with code {process.returncode}.")
            if time.monotonic() > deadline:
                stop()
                raise Problem(f"the emulator did not answer within {START_SECONDS} s.")
            time.sleep(0.1)
    return record


def stop():
    """Stop our emulator with the functions it runs; False if none runs."""
    record = running()
    if record:
        # It leads its own process group (a session of its own), so its workers go too.
        os.killpg(record["pid"], signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while running():
            if time.monotonic() > deadline:
                os.killpg(record["pid"], signal.SIGKILL)
                break
            time.sleep(0.05)
    RECORD.unlink(missing_ok=True)
    return record is not None
