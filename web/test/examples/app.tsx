// A page that shows one session: its conversation as it is written, the agent's questions, the queue, and the
// files.
import type { Client } from "@overwinter/client";
import { Conversation, OverwinterProvider, PromptBox, Questions, useFiles, useQueue, useSession } from "@overwinter/react";

export function App({ client, sessionId }: { client: Client; sessionId: string }) {
  return (
    <OverwinterProvider client={client}>
      <Header sessionId={sessionId} />
      <Conversation sessionId={sessionId} />
      <Questions sessionId={sessionId} />
      <Waiting sessionId={sessionId} />
      <PromptBox sessionId={sessionId} />
      <Files sessionId={sessionId} />
    </OverwinterProvider>
  );
}

function Header({ sessionId }: { sessionId: string }) {
  const { session, connection, command } = useSession(sessionId);
  return (
    <header>
      <h1>{session?.title ?? "Session"}</h1>
      <p role="status">
        {connection}: {session?.doing.text}
      </p>
      <button onClick={() => void command("abort")}>Interrupt</button>
    </header>
  );
}

function Waiting({ sessionId }: { sessionId: string }) {
  const { queue, withdraw } = useQueue(sessionId);
  return (
    <ol aria-label="Queue">
      {queue.map((prompt) => (
        <li key={prompt.id}>
          {prompt.content} ({prompt.status}) {prompt.status === "queued" && <button onClick={() => void withdraw(prompt.id)}>Withdraw</button>}
        </li>
      ))}
    </ol>
  );
}

function Files({ sessionId }: { sessionId: string }) {
  const { files } = useFiles(sessionId);
  return <ul aria-label="Files">{files?.map((file) => <li key={file.path}>{`${file.path}, ${file.size} bytes`}</li>)}</ul>;
}
