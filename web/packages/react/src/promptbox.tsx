import { newId } from "@overwinter/client";
import { useId, useRef, useState, type FormEvent, type KeyboardEvent } from "react";
import { useSession } from "./hooks.js";

export interface PromptBoxProps {
  sessionId: string;
  /** Label of the text. Default: `Prompt`. */
  label?: string;
  /** Label of the button. Default: `Send`. */
  submit?: string;
}

/** A form that submits prompts. Enter submits, and Shift+Enter inserts a new line. */
export function PromptBox({ sessionId, label = "Prompt", submit = "Send" }: PromptBoxProps) {
  const { session, prompt } = useSession(sessionId);
  const field = useId();
  const [sending, setSending] = useState(false);
  const [error, setError] = useState<Error>();
  // A retry reuses the prompt's id, so that the prompt does not run twice if the server did receive it.
  const unsent = useRef({ content: "", id: "" });
  const over = session?.status === "terminated";

  async function send(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = event.currentTarget;
    const text = form.elements.namedItem("content") as HTMLTextAreaElement;
    const content = text.value;
    if (content.trim() === "" || sending) return;
    if (unsent.current.content !== content) unsent.current = { content, id: newId("prompt") };
    setSending(true);
    setError(undefined);
    try {
      await prompt({ ...unsent.current });
      unsent.current = { content: "", id: "" };
      if (text.value === content) form.reset();
    } catch (e) {
      setError(e instanceof Error ? e : new Error(String(e)));
    } finally {
      setSending(false);
    }
  }

  function keyDown(event: KeyboardEvent<HTMLTextAreaElement>) {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    event.currentTarget.form?.requestSubmit();
  }

  return (
    <form onSubmit={(e) => void send(e)} aria-busy={sending}>
      <label htmlFor={field}>{label}</label>
      <textarea id={field} name="content" rows={3} disabled={over} onKeyDown={keyDown} />
      <button type="submit" disabled={over || sending}>
        {submit}
      </button>
      {error ? <p role="alert">{error.message}</p> : null}
    </form>
  );
}
