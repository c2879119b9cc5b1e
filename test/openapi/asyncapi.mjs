// Prints what the parser of AsyncAPI finds in a document, and fails if it finds anything.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const { document, diagnostics } = await new Parser().parse(readFileSync(process.argv[2], "utf8"));
for (const d of diagnostics) console.log(d.code, d.message, d.path.join("."));
if (!document || diagnostics.length > 0) process.exit(1);
console.log(`valid, ${document.allMessages().all().length} messages`);
