// Package uistream has software that is not ours judge the streams of turns: the validators and useChat of the AI SDK, in a
// page of jsdom, and the verifier and HttpAgent of AG-UI, over every stream that the repository has recorded of an agent and over
// sessions of a system that runs.
//
// chat.tsx is the page of docs/clients.md.
package uistream
