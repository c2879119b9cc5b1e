export { Client, createClient, newId, pages, SessionHandle, type Command } from "./client.js";
export { OverwinterError, type ErrorCode } from "./error.js";
export { fold, Folder } from "./fold.js";
export { isMarker, type FollowOptions } from "./follow.js";
export type { ClientOptions, Input, Method, OperationOf, PathOf, RequestOptions, Result, Transport, WebSocketConstructor, WebSocketLike } from "./http.js";
export type { components, operations, paths } from "./schema.js";
export { SessionStore, type Connection, type QueueItem, type SessionState, type StoredFile } from "./store.js";
export type * from "./types.js";
