// Package resource has the JSON of what the API serves: a session, a prompt, a question, a command, a file. Events carry the same
// JSON, so that a client reads a session or a prompt in one way. The package is pure: it converts, and knows neither a store
// nor a transport.
//
// Times are RFC 3339 in UTC with exactly three decimals; durations are Go duration strings.
package resource
