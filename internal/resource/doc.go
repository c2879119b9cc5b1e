// Package resource has the JSON of the API's resources: sessions, prompts, questions, commands,
// files. Events contain the same JSON, so that a session or a prompt has one form for clients. The
// package is pure: it only converts, and uses neither a store nor a transport.
//
// Times are RFC 3339 in UTC with exactly three decimals; durations are Go duration strings.
package resource
