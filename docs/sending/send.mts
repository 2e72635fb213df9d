// Sends one webhook: node send.mts
import { SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

const sqs = new SQSClient({});

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

// Text as `body`, anything else as `body_base64`. SQS refuses U+FFFE and U+FFFF, which JSON.stringify leaves as they are.
function content(body: Uint8Array): { body: string } | { body_base64: string } {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
    if (!/[\uFFFE\uFFFF]/.test(text)) return { body: text };
  } catch {
    // Not UTF-8.
  }
  return { body_base64: Buffer.from(body).toString("base64") };
}

async function send(eventId: string, endpoint: string, body: Uint8Array, contentType = "application/json"): Promise<void> {
  const message = { id: eventId, endpoint, content_type: contentType, ...content(body) };
  await sqs.send(
    new SendMessageCommand({
      QueueUrl: required("INTAKE_QUEUE_URL"),
      MessageBody: JSON.stringify(message),
      MessageGroupId: endpoint,
    }),
  );
}

const order = { order: 4711, status: "paid" };
// From the event itself: sent twice, it is still one event.
await send(`order_${order.order}_${order.status}`, required("WEBHOOK_ENDPOINT"), new TextEncoder().encode(JSON.stringify(order)));
