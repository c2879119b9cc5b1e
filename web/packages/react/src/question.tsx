import type { Answer, Question as AnyQuestion } from "@overwinter/client";
import { useId, useState, type FormEvent } from "react";
import { useQuestions } from "./hooks.js";

export interface QuestionProps {
  question: AnyQuestion;
  /** Sends the answer. If the promise rejects, the error is shown. */
  onAnswer: (answer: Answer) => Promise<unknown>;
}

/** Shows all open questions of a session. */
export function Questions({ sessionId }: { sessionId: string }) {
  const { questions, answer } = useQuestions(sessionId);
  return (
    <>
      {questions.map((q) => (
        <Question key={q.id} question={q} onAnswer={(body) => answer(q.id, body)} />
      ))}
    </>
  );
}

const permissions = [
  { answer: "once", label: "Allow once" },
  { answer: "session", label: "Allow for this session" },
  { answer: "always", label: "Always allow" },
  { answer: "reject", label: "Reject" },
] as const;

/** Shows a question of an agent, with a form for the answer. */
export function Question({ question, onAnswer }: QuestionProps) {
  const title = useId();
  const [sending, setSending] = useState(false);
  const [error, setError] = useState<Error>();

  async function send(answer: Answer) {
    setSending(true);
    setError(undefined);
    try {
      await onAnswer(answer);
    } catch (e) {
      setError(e instanceof Error ? e : new Error(String(e)));
    } finally {
      setSending(false);
    }
  }

  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const answers: Record<string, string | string[]> = {};
    for (const [i, { question: text, multiple }] of (question.questions ?? []).entries()) {
      const own = String(form.get(`own-${i}`) ?? "").trim();
      const chosen = [...form.getAll(`choice-${i}`).map(String), ...(own === "" ? [] : [own])];
      if (chosen.length === 0) {
        setError(new Error(`"${text}" has no answer yet`));
        return;
      }
      answers[text] = multiple ? chosen : (chosen.at(-1) ?? "");
    }
    void send({ answers });
  }

  return (
    <section aria-labelledby={title} aria-busy={sending} data-question={question.id}>
      <p id={title}>{question.title}</p>
      {question.kind === "permission" ? (
        permissions.map(({ answer, label }) => (
          <button key={answer} type="button" disabled={sending} onClick={() => void send({ answer })}>
            {label}
          </button>
        ))
      ) : (
        <form onSubmit={submit}>
          {(question.questions ?? []).map((item, i) => (
            <fieldset key={item.question} disabled={sending}>
              <legend>{item.question}</legend>
              {item.options.map((option) => (
                <label key={option.label}>
                  <input type={item.multiple ? "checkbox" : "radio"} name={`choice-${i}`} value={option.label} /> {option.label}
                  {option.description ? <small> {option.description}</small> : null}
                </label>
              ))}
              <label>
                {item.options.length > 0 ? "Another answer" : "Answer"} <input type="text" name={`own-${i}`} />
              </label>
            </fieldset>
          ))}
          <button type="submit" disabled={sending}>
            Answer
          </button>
          <button type="button" disabled={sending} onClick={() => void send({ answer: "reject" })}>
            Reject
          </button>
        </form>
      )}
      {error ? <p role="alert">{error.message}</p> : null}
    </section>
  );
}
