// Shared by the scripts: reading a stream with the AI SDK.
import { parseJsonEventStream, readUIMessageStream, uiMessageChunkSchema } from "ai";

/** The chunks of a response body, each of which the SDK's schema must accept. */
export function uiMessageChunks(body) {
  return parseJsonEventStream({ stream: body, schema: uiMessageChunkSchema }).pipeThrough(
    new TransformStream({
      transform(chunk, controller) {
        if (!chunk.success) throw chunk.error;
        controller.enqueue(chunk.value);
      },
    }),
  );
}

/** The message that a stream leads to, and the errors that it reports. */
export async function assembled(stream) {
  const problems = [];
  let message;
  for await (message of readUIMessageStream({ stream, onError: (error) => problems.push(String(error)) }));
  return { message, problems };
}

/** The texts of the parts of a type, without blocks of earlier steps that were removed. */
export function texts(message, type) {
  const removed = new Set(message.parts.filter((part) => part.type === "data-removed").map((part) => part.id));
  const shown = message.parts.filter((part) => part.type === type && !removed.has(part.providerMetadata?.overwinter?.blockId));
  return shown.map((part) => part.text);
}

/** The message without fields that are undefined, as JSON has it. */
export const plain = (message) => JSON.parse(JSON.stringify(message));
