import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, type UIMessage } from "ai";
import { useEffect, useRef, useState } from "react";

/** Whether the agent has removed a block that the message shows. */
const removed = (message: UIMessage, block: unknown) => message.parts.some((part) => part.type === "data-removed" && part.id === block);

/** A chat with the session at `session`, such as "/api/sessions/ses_…". `initial` is what GET `${session}/ai/messages` returns. */
export function Chat({ session, initial = [] }: { session: string; initial?: UIMessage[] }) {
  const [text, setText] = useState("");
  const lost = useRef(""); // the message whose stream was cut
  const retry = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(retry.current), []);
  const { messages, sendMessage, resumeStream, status, error } = useChat({
    id: session,
    messages: initial,
    resume: true,
    transport: new DefaultChatTransport({
      api: `${session}/ai`,
      // The session has the conversation: the new message is enough.
      prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({
        body: { id, messages: messages.slice(-1), trigger, messageId },
      }),
      prepareReconnectToStreamRequest: () => ({
        api: `${session}/ai/stream` + (lost.current && `?message=${encodeURIComponent(lost.current)}`),
      }),
    }),
    // A stream that was cut is read again from its start. The turn has not stopped, and may be over by now.
    onError: (problem) => {
      if (!(problem instanceof TypeError)) return; // what the turn itself has reported
      lost.current = prompt()?.id ?? "";
      retry.current = setTimeout(resumeStream, 500);
    },
    onFinish: ({ isError }) => {
      if (!isError) lost.current = "";
    },
  });
  const prompt = () => messages.findLast((message) => message.role === "user");

  // Leaving the page stops nothing. A prompt that waits is withdrawn, and a turn that runs is aborted; its stream then ends.
  async function stop() {
    const withdrawn = await fetch(`${session}/prompts/${prompt()?.id}`, { method: "DELETE" });
    if (withdrawn.status === 409) await fetch(`${session}/abort`, { method: "POST" }); // it runs already
  }

  async function answer(question: string, answer: "once" | "reject") {
    await fetch(`${session}/questions/${question}/answer`, { method: "POST", body: JSON.stringify({ answer }) });
  }

  return (
    <main data-status={status}>
      {messages.map((message) => (
        <article key={message.id} id={message.id} className={message.role}>
          {message.parts.map((part, i) => {
            if ("providerMetadata" in part && removed(message, part.providerMetadata?.["overwinter"]?.["blockId"])) return null;
            if (part.type === "text") return <p key={i}>{part.text}</p>;
            if (part.type === "reasoning") return <em key={i}>{part.text}</em>;
            if (part.type === "dynamic-tool") return <code key={i}>{`${part.title ?? part.toolName}: ${part.state}`}</code>;
            if (part.type !== "data-question") return null;
            const question = part.data as { id: string; title: string; status: string };
            if (question.status !== "open") return null;
            return (
              <div key={i} className="question">
                {question.title}
                <button onClick={() => answer(question.id, "once")}>Allow</button>
                <button onClick={() => answer(question.id, "reject")}>Reject</button>
              </div>
            );
          })}
        </article>
      ))}
      {error && <strong>{error.message}</strong>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void sendMessage({ text });
          setText("");
        }}
      >
        <input value={text} onChange={(event) => setText(event.target.value)} />
        {status === "ready" || status === "error" ? <button>Send</button> : <button type="button" className="stop" onClick={stop}>Stop</button>}
      </form>
    </main>
  );
}
