// Shared by the scripts: reading a stream with AG-UI's client.
import { AbstractAgent, HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";
import { EventSchemas } from "@ag-ui/core/schemas";

/** Checks each event against the protocol's schema. The verifier of runAgent checks their order. */
export const checked = {
  onEvent({ event }) {
    EventSchemas.parse(event);
  },
};

/** An agent whose runs are a recorded response. */
export class Recording extends AbstractAgent {
  constructor(body) {
    super({ threadId: "ses_1" });
    this.body = body;
  }
  run() {
    return transformHttpEventStream(runHttpRequest(async () => new Response(this.body, { headers: { "content-type": "text/event-stream" } })));
  }
}

/** The agent of a session, which attaches with GET. */
export class SessionAgent extends HttpAgent {
  connect() {
    return transformHttpEventStream(runHttpRequest(() => this.fetch(this.url, { headers: { accept: "text/event-stream" } })));
  }
}

/** The events of a response, in the form in which they came. */
export async function eventsOf(response) {
  const text = await response.text();
  return text.split("\n\n").filter((frame) => frame.startsWith("data: ")).map((frame) => JSON.parse(frame.slice(6)));
}

/** A fetch whose bodies end where they fail: the agent would leave a rejection without a handler. */
export const ending = (cut) => async (url, init) => {
  const { status, headers, body } = await fetch(url, init);
  const reader = body.getReader();
  const pull = (controller) =>
    reader.read().then(
      ({ done, value }) => (done ? controller.close() : controller.enqueue(value)),
      () => (cut(), controller.close()),
    );
  return new Response(new ReadableStream({ pull }), { status, headers });
};
