// Package contract is what the workflow of a session and those who reach it have agreed on: its name and input, the task queues of
// an installation, the signals and the query that the workflow answers, and the search attributes that it sets. The workflow
// implements it; the api's client, the workers and the command line use it. A workflow that is open, and a recorded history,
// has these names: they are never changed, and a name that is not used any more is still read.
//
// What a session is says package session; this package adds how its workflow is reached, and imports nothing else.
package contract
