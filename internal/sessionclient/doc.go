// Package sessionclient is the typed client of the session workflow: it signals
// and queries. It holds no state and no policy; what a command means is decided
// by the session's row, before anything is signalled.
//
//	SignalPrompt, SignalCommands, SignalStop  signal-with-start: they reach a session
//	                                          whose workflow has completed
//	SignalSettings, SignalSandbox             signal: nothing to do where no workflow is open
//	State, CurrentRun                         queries
//
// Every call has the deadline of its context and at most two seconds. An error is
// a *failure.Error: unavailable when Temporal does not answer in time,
// session_not_found when no workflow is open and the call needs one.
package sessionclient
