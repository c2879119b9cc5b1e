// Names for the schemas of the OpenAPI document that programs use most.
import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];

export type Session = Schemas["Session"];
export type SessionCreate = Schemas["SessionCreate"];
export type SessionPatch = Schemas["SessionPatch"];
export type SessionStatus = Schemas["SessionStatus"];
export type Prompt = Schemas["Prompt"];
export type PromptSubmit = Schemas["PromptSubmit"];
export type PromptAccepted = Schemas["PromptAccepted"];
export type Run = Schemas["Run"];
export type RunRequest = Schemas["RunRequest"];
export type Question = Schemas["Question"];
export type Answer = NonNullable<operations["answerQuestion"]["requestBody"]>["content"]["application/json"];
export type WorkspaceFile = Schemas["File"];
export type Diff = Schemas["Diff"];
export type Git = Schemas["Git"];
export type Screenshot = Schemas["Screenshot"];
export type Revert = NonNullable<operations["revertSession"]["requestBody"]>["content"]["application/json"];
export type StreamToken = Schemas["StreamToken"];
export type Agent = Schemas["Agent"];
export type Problem = Schemas["Problem"];

/** A piece of a conversation, discriminated by `type`. */
export type Block = Schemas["Block"];
export type BlockType = Block["type"];
/** The main conversation, or that of a subagent. */
export type Conversation = Schemas["Conversation"];

/** An event of a session's log, discriminated by `type`. Newer servers may send other types; ignore them. */
export type Event = Schemas["Event"];

/** Markers of a stream are not events: they have no `seq`. */
export type Marker =
  /** The stream has reached the newest event. Sent once. */
  | { type: "caught_up"; data: { seq: number } }
  /** The events from `from` to `to` have been deleted and will not be sent. */
  | { type: "gap"; data: { from: number; to: number } }
  /** The session is terminated and all of its events have been sent. */
  | { type: "end"; data: Record<string, never> };

/** An item yielded by `follow`. */
export type StreamItem = Event | Marker;

export interface Page<T> {
  items: T[];
  /** Cursor of the next page; null on the last. */
  nextCursor: string | null;
}
