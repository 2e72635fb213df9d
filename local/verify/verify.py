"""Verifies requests as a receiver in Python does.

Reads a JSON list from standard input, prints a JSON list of verdicts. Each item
says how to verify: `library` is the official one, which knows v1 only and takes
text; `bytes` is v1 by hand, for any body; `v1a` is ed25519 by the `cryptography`
package. A verdict is `accepted` or `refused: why`.
"""

import base64
import hashlib
import hmac
import json
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError


def by_library(key, headers, body):
    # A body that is no JSON is none of the signature's business.
    Webhook(key).verify(body, headers, json_parse=False)


def signed_bytes(headers, body):
    return b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])


def signatures(headers, scheme):
    for value in headers["webhook-signature"].split(" "):
        found, _, signature = value.partition(",")
        if found == scheme:
            yield base64.b64decode(signature, validate=True)


def by_bytes(key, headers, body):
    secret = base64.b64decode(key.removeprefix("whsec_"), validate=True)
    expected = hmac.digest(secret, signed_bytes(headers, body), hashlib.sha256)
    if not any(hmac.compare_digest(expected, found) for found in signatures(headers, "v1")):
        raise InvalidSignature("no v1 signature matches")


def by_public_key(key, headers, body):
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.removeprefix("whpk_"), validate=True))
    for found in signatures(headers, "v1a"):
        try:
            return public.verify(found, signed_bytes(headers, body))
        except InvalidSignature:
            pass
    raise InvalidSignature("no v1a signature matches")


WAYS = {"library": by_library, "bytes": by_bytes, "v1a": by_public_key}


def verdict(check):
    try:
        WAYS[check["way"]](check["key"], check["headers"], base64.b64decode(check["body_base64"]))
    except (WebhookVerificationError, InvalidSignature) as problem:
        return f"refused: {problem}"
    except UnicodeDecodeError:
        return "refused: the body is no text"
    return "accepted"


json.dump([verdict(check) for check in json.load(sys.stdin)], sys.stdout)
