// Package wire holds the JSON shapes that are seen from outside in more than one
// place: a session and a prompt look the same in an answer of the API and in the
// events of a stream. It is pure: it converts, and knows no store and no transport.
//
// Times are RFC 3339 in UTC with exactly three decimals; durations are Go duration
// strings.
package wire
