// Package client is the Go client of overwinter's HTTP API. The command line is one of its users.
//
// A [Client] has a method for each call. Creates and prompts carry ids chosen by the client, so
// that every call is safe to retry. The client retries a call if the server was not reached, or if
// the server requests a retry. If the server refuses a call, the method returns an [*Error] with a
// [Code].
//
// # Following
//
//   - [Client.Follow] yields the events of one session, each once and in order.
//   - [Client.FollowBlocks] yields the conversation as blocks, one each time a block changes.
//   - [Client.FollowAll] yields the lifecycle events of all sessions.
//   - [Client.PromptWait] returns when a prompt has ended.
//
// If the connection breaks, or is silent for longer than three heartbeats of the server, all of
// these methods reconnect and continue after the last event. They end with their context, and read
// from the network only as fast as the program consumes the results.
//
// # Compatibility
//
// The types correspond to api/openapi.yaml and do not depend on other packages of this module.
// Servers may send fields, types of events and blocks, and enumeration values that this version
// does not know: unknown fields are ignored, and unknown types and values are passed on.
package client
