// Package socket defines the messages that the api sends over WebSockets. It converts the events of
// a session's log and the blocks of its conversation to messages. The protocol is documented in
// api/asyncapi.yaml.
//
// The package is pure. A message is a function of its event alone, so that two clients, or a client
// that resumes after its position, get the same bytes from every api.
//
// # Invariants
//
//   - An event becomes at most one message with its seq. A client that has a message with a seq has
//     all events up to that seq, and resumes after it.
//   - No event is lost: an event without a name in the protocol becomes the message "event", with
//     its type and its data. The same applies to an event whose data does not match its type.
package socket
