// Package client is the Go client of overwinter's HTTP API. The command line is one of its users.
//
// A [Client] has a method for each call. Creates and prompts carry ids of the client, so that every
// call may be repeated without harm: a call is made again if the server was not reached, or asks
// for that. A refusal of the server is an [*Error] with a [Code].
//
// # Following
//
//   - [Client.Follow] yields the events of one session, each once and in order.
//   - [Client.FollowBlocks] yields its conversation as blocks, each time one changes.
//   - [Client.FollowAll] yields what happens to all sessions.
//   - [Client.PromptWait] returns when a prompt has ended.
//
// All of them continue after the last event if the connection breaks, or is silent for longer than three heartbeats of the server, and
// end with their context. They read from the network only as fast as the program reads from them.
//
// # Compatibility
//
// The types are those of api/openapi.yaml, and of no other package of this module. Servers may send fields, types of
// events and of blocks, and values of enumerations that this version does not know: fields are ignored, and unknown types and values passed on.
package client
