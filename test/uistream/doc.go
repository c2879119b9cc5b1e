// Package uistream checks the streams of turns with third-party software: the validators and
// useChat of the AI SDK, in a page of jsdom, and the verifier and HttpAgent of AG-UI. They read
// every recorded stream of an agent in the repository, and sessions of a running system.
//
// chat.tsx is the page of docs/clients.md.
package uistream
