// Verifies requests as a receiver in Node does: the counterpart of verify.py, with Node's own ed25519 and HMAC.

import { createHmac, createPublicKey, timingSafeEqual, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// Where `local/stack.py verifiers` installs it.
const installed = createRequire(new URL("../../.venv/verify-node/package.json", import.meta.url));
const { Webhook, WebhookVerificationError } = installed("standardwebhooks");

class NoMatch extends Error {}

function byLibrary(key, headers, body) {
  // A body that is no JSON is none of the signature's business.
  new Webhook(key).verify(body, headers, { jsonParse: false });
}

function signedBytes(headers, body) {
  return Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`), body]);
}

function signatures(headers, scheme) {
  return headers["webhook-signature"]
    .split(" ")
    .filter((value) => value.startsWith(`${scheme},`))
    .map((value) => Buffer.from(value.slice(scheme.length + 1), "base64"));
}

function byBytes(key, headers, body) {
  const secret = Buffer.from(key.replace(/^whsec_/, ""), "base64");
  const expected = createHmac("sha256", secret).update(signedBytes(headers, body)).digest();
  const matches = (found) => found.length === expected.length && timingSafeEqual(found, expected);
  if (!signatures(headers, "v1").some(matches)) throw new NoMatch("no v1 signature matches");
}

function byPublicKey(key, headers, body) {
  const x = Buffer.from(key.replace(/^whpk_/, ""), "base64").toString("base64url");
  const publicKey = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  const matches = (found) => verify(null, signedBytes(headers, body), publicKey, found);
  if (!signatures(headers, "v1a").some(matches)) throw new NoMatch("no v1a signature matches");
}

const ways = { library: byLibrary, bytes: byBytes, v1a: byPublicKey };

function verdict(check) {
  try {
    ways[check.way](check.key, check.headers, Buffer.from(check.body_base64, "base64"));
    return "accepted";
  } catch (problem) {
    if (problem instanceof WebhookVerificationError || problem instanceof NoMatch) return `refused: ${problem.message}`;
    throw problem;
  }
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(verdict)));
