// Package socket has the messages that the api sends over WebSockets. It makes them of the events of a session's log and of the blocks
// of its conversation. The document of the protocol is api/asyncapi.yaml.
//
// The package is pure. A message is a function of its event alone, so that two clients, or one client that has come back
// after its position, get the same bytes whichever api they are connected to.
//
// # Invariants
//
//   - An event is at most one message with its seq. A client that has a message with a seq has everything up to there, and
//     continues after it.
//   - No event is lost: one that the protocol has no name for is the message "event", with its type and its data. The
//     same applies to an event whose data does not fit its type.
package socket
