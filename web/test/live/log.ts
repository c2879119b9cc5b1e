// Follows a session until it has ended, and prints one event per line.
import { createClient, isMarker, type Transport } from "@overwinter/client";
import assert from "node:assert/strict";

const [baseUrl, id] = (process.env["SESSION_URL"] ?? "").split("/api/sessions/");
const client = createClient({ baseUrl: baseUrl ?? "", transport: process.env["TRANSPORT"] as Transport });
let lost = 0;
for await (const item of client.session(id ?? "").follow({ onConnection: (state) => state === "lost" && lost++ })) {
  if (!isMarker(item)) console.log(JSON.stringify(item));
  else assert.notEqual(item.type, "gap");
}
console.error(`${lost} connections lost`);
