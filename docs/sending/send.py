"""Sends one webhook: python send.py"""

import base64
import json
import os

import boto3

sqs = boto3.client("sqs")


def send(event_id: str, endpoint: str, body: bytes, content_type: str = "application/json") -> None:
    message = {"id": event_id, "endpoint": endpoint, "content_type": content_type}
    try:
        message["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        message["body_base64"] = base64.b64encode(body).decode("ascii")
    sqs.send_message(
        QueueUrl=os.environ["INTAKE_QUEUE_URL"],
        MessageBody=json.dumps(message),
        MessageGroupId=endpoint,
    )


if __name__ == "__main__":
    order = {"order": 4711, "status": "paid"}
    # From the event itself: sent twice, it is still one event.
    send(f"order_{order['order']}_{order['status']}", os.environ["WEBHOOK_ENDPOINT"], json.dumps(order).encode())
